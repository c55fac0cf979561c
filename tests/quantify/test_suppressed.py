"""Suppressed communities in the stage's tables, in its log and in contrasts."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from tests.conftest import small_settings
from tests.quantify.test_stage import answered, make_run, of
from xnq_dist.core.errors import SettingsError
from xnq_dist.quantify.default.contrast import contrast
from xnq_dist.quantify.stage import quantify


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


def write_sets(folder, labels) -> str:
    """Towns of two areas; clubs that differ in little; one with known members."""
    unanimous = np.flatnonzero(labels == 1)[:12]
    sets = {
        "club": (np.arange(100, 140), None),
        "club without three": (np.arange(103, 140), None),
        "known": (unanimous, None),
        "town 1": (np.arange(0, 6), "area"),
        "town 2": (np.arange(6, 30), "area"),
        "town 3": (np.arange(30, 90), "area"),
    }
    columns = {
        "community": [name for name, (own, _) in sets.items() for _ in own],
        "node_id": np.concatenate([own for own, _ in sets.values()]),
        "parent": pa.array(
            [above for own, above in sets.values() for _ in own], pa.string()
        ),
    }
    path = folder / "sets.parquet"
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_communities_that_reveal_single_members_are_suppressed(
    client, tmp_path, caplog
):
    made = make_run(tmp_path)
    labels = made.graph.labels
    assert np.count_nonzero(labels == 1) >= 12
    sources = of(made, memberships=write_sets(tmp_path, labels))
    settings = small_settings("quantifier=auto")
    with caplog.at_level(logging.INFO):
        manifest = quantify(made.run, sources, settings, client)
    assert "4 of 7 communities have fewer than 10 members" in caplog.text
    assert manifest.facts["suppressed"] == 4
    rows = answered(made.run, manifest).to_pylist()
    notes = {
        row["community"]: row["note"] for row in rows if row["quality"] == "suppressed"
    }
    reveals = "suppressed: alone or with other results it would reveal single members"
    assert notes == {
        "club without three": reveals,
        "known": reveals,
        "town 1": "suppressed: fewer than 10 members",
        "town 2": reveals,
    }
    assert all(row["prevalence"] is not None for row in rows)
    where = str(made.run.location)
    assert contrast(where, "club", "town 3")
    with pytest.raises(SettingsError, match=r"suppressed \(fewer than 10"):
        contrast(where, "town 1", "area")
    shown = small_settings("quantifier=auto", "disclosure.min_size=1")
    manifest = quantify(made.run, sources, shown, client)
    assert "suppressed" not in answered(made.run, manifest)["quality"].to_pylist()
    assert contrast(where, "town 1", "area")
