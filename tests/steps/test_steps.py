"""The steps after the estimates: each one can be left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import read_published
from xnq_dist.steps import STEPS
from xnq_dist.steps.publish import publish

MADE = {
    "anomalies": {"anomalies.parquet"},
    "history": {"changes.parquet", "history.parquet"},
    "page": {"report.html"},
}


def test_a_step_that_is_left_out_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(MADE) == set(STEPS)
    files = {}
    for left_out in ("", *MADE):
        with monkeypatch.context() as patched:
            if left_out:
                patched.delitem(STEPS, left_out)
            for seed in (0, 1):
                table = prevalence_table(np.arange(40), intervals=True, seed=seed)
                run = write_fake_run(tmp_path / f"without {left_out}", [table])
                publish(run, Settings())
        version = read_published(run.location)
        files[left_out] = {record.name for record in version.manifest.files}
        assert ("verdict" in version.manifest.facts) == (left_out != "page")
    for step, made in MADE.items():
        assert files[""] - files[step] == made
