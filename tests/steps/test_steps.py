"""The steps after the estimates: each one can be left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Published, read_published
from xnq_dist.steps import STEPS
from xnq_dist.steps.publish import publish

MADE = {
    "anomalies": {"anomalies.parquet"},
    "history": {"changes.parquet", "history.parquet"},
    "page": {"report.html"},
}


@pytest.mark.parametrize("step", MADE)
def test_a_step_that_is_left_out_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    assert set(MADE) == set(STEPS.records())
    files = []
    for left_out in ("", step):
        if left_out:
            monkeypatch.delitem(STEPS.records(), step)
        folder = tmp_path / f"without {left_out}"
        for seed in (0, 1):
            table = prevalence_table(np.arange(40), intervals=True, seed=seed)
            run = write_fake_run(folder, [table])
            publish(run, Settings())
        version = read_published(run.location)
        assert len(Published(run).versions()) == 2
        files.append({record.name for record in version.manifest.files})
        assert ("verdict" in version.manifest.facts) == (left_out != "page")
    assert files[0] - files[1] == MADE[step]
