"""Suppressed communities in the stage's tables, in its log and in contrasts."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings
from tests.quantify.test_stage import answered, finish, of
from xnq_dist.core.errors import SettingsError
from xnq_dist.steps.contrast import contrast


def test_communities_of_few_members_are_suppressed(made, client, tmp_path, caplog):
    sets = {"six": np.arange(6), "nine": np.arange(6, 15), "ten": np.arange(15, 25)}
    table = {
        "community": [name for name, own in sets.items() for _ in own],
        "node_id": np.concatenate([*sets.values()]),
    }
    path = tmp_path / "sets.parquet"
    pq.write_table(pa.table(table), path)
    sources = of(made, memberships=str(path))
    settings = small_settings("quantifier=auto")
    with caplog.at_level(logging.INFO):
        manifest = finish(made, sources, settings, client)
    assert "2 of 3 communities have fewer than 10 members" in caplog.text
    assert manifest.facts["suppressed"] == 2
    rows = answered(made.run, manifest).to_pylist()
    notes = {
        row["community"]: row["note"] for row in rows if row["quality"] == "suppressed"
    }
    assert notes == dict.fromkeys(("six", "nine"), "suppressed: fewer than 10 members")
    assert all(row["prevalence"] is not None for row in rows)
    where = str(made.run.location)
    with pytest.raises(SettingsError, match=r"suppressed \(fewer than 10"):
        contrast(where, "six", "ten")
    shown = small_settings("quantifier=auto", "disclosure.min_size=1")
    manifest = finish(made, sources, shown, client)
    assert "suppressed" not in answered(made.run, manifest)["quality"].to_pylist()
    assert contrast(where, "six", "ten")
