"""The profile of a run's tables: made in one pass, and again only after a change."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.app.wrong import edit, write_tables
from tests.graph.graphs import node_table, written
from xnq_dist.core.config import load_settings
from xnq_dist.core.store import Folder
from xnq_dist.graph import contents
from xnq_dist.graph.profile.inputs import profile_inputs, read_contents
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.tables import Table

SETTINGS = load_settings(overrides=["columns.features=[age,income]"])


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Tables that count as unchanged for some time."""
    write_tables(tmp_path / "t")
    monkeypatch.setattr(contents, "RACY", 0)
    time.sleep(0.05)
    names = ("nodes", "edges", "memberships")
    return Sources(*(str(tmp_path / "t" / f"{name}.parquet") for name in names))


@pytest.fixture
def reads(monkeypatch):
    """The tables that are read, in order."""
    read: list[str] = []
    real = Table.batches

    def spied(self, *arguments):
        read.append(self.what)
        return real(self, *arguments)

    monkeypatch.setattr(Table, "batches", spied)
    return read


def test_each_table_is_read_once_for_profile_and_digests(tmp_path, sources, reads):
    folder = Folder.of(tmp_path / "run")
    profile_inputs(sources, SETTINGS, folder)
    read_contents(folder, sources, SETTINGS)
    assert reads == ["node table", "edge table", "memberships table"]


def test_unchanged_tables_are_profiled_once(tmp_path, sources, reads):
    folder = Folder.of(tmp_path / "run")
    first = profile_inputs(sources, SETTINGS, folder)
    reads.clear()
    again = profile_inputs(sources, SETTINGS, folder)
    assert reads == []
    assert again.tables == json.loads(json.dumps(first.tables))
    quantified = load_settings(
        overrides=["columns.features=[age,income]", "quantifier=sld"]
    )
    profile_inputs(sources, quantified, folder)
    assert reads == []


def test_a_changed_table_is_profiled_with_its_new_digest(tmp_path, sources, reads):
    folder = Folder.of(tmp_path / "run")
    profile_inputs(sources, SETTINGS, folder)
    edit("edges", src=lambda values: values[::-1])(tmp_path / "t")
    time.sleep(0.05)
    reads.clear()
    read_contents(folder, sources, SETTINGS)
    # Ids of the nodes are read again to match the edges.
    assert reads == ["node table", "edge table"]
    reads.clear()
    profile_inputs(sources, SETTINGS, folder)
    assert reads == []


def test_any_files_order_and_format_have_the_same_profile(tmp_path, sources):
    first = profile_inputs(sources, SETTINGS)
    (tmp_path / "u").mkdir()
    for name in ("nodes", "edges", "memberships"):
        table = pq.read_table(tmp_path / "t" / f"{name}.parquet")
        if name == "nodes":
            table = table.drop_columns(["features"])
        table = table.take(np.random.default_rng(1).permutation(len(table)))
        (tmp_path / "u" / name).mkdir()
        for at, part in enumerate((table[:20], table[20:])):
            pacsv.write_csv(part, tmp_path / "u" / name / f"{at}.csv")
    names = ("nodes", "edges", "memberships")
    again = profile_inputs(
        Sources(*(str(tmp_path / "u" / name) for name in names)), SETTINGS
    )
    assert again.classes == first.classes == [("bot", 16), ("human", 32)]
    for name, facts in first.tables.items():
        other = again.tables[name]
        assert {k for k in facts if facts[k] != other[k]} <= {"path", "columns"}


@pytest.mark.parametrize("kind", [pa.uint64(), pa.decimal128(38, 0)], ids=str)
@pytest.mark.parametrize("large", [False, True], ids=["nodes", "all tables"])
def test_ids_beyond_64_bits_match_in_all_tables(tmp_path, kind, large):
    """Edges and memberships may have small ids alone, as int64 or as text files."""
    ids = [*range(1, 10), 2**63 + 10]
    named = ids if large else ids[:-1]
    ends = pa.array(named, kind if large else pa.int64())
    tables = {
        "nodes": node_table(10, node_id=pa.array(ids, kind)),
        "edges": pa.table({"src": ends, "dst": ends[::-1]}),
        "members": "community,node_id\n" + "".join(f"a,{each}\n" for each in named),
    }
    sources = Sources(*(written(tmp_path / name, tables[name]) for name in tables))
    folder, chosen = Folder.of(tmp_path / "run"), load_settings()
    profile = profile_inputs(sources, chosen, folder)
    for table in ("edges", "memberships"):
        facts = profile.tables[table]
        assert facts["matched"] == facts["rows"] == len(named)
    # Another process, which knows the node table by its digest alone, agrees.
    before = read_contents(folder, sources, chosen)
    assert before == read_contents(Folder.of(tmp_path / "other"), sources, chosen)


@pytest.mark.slow
def test_ten_million_rows_are_profiled_in_ten_seconds(tmp_path, record_property):
    rng, n, rows = np.random.default_rng(0), 1_000_000, 9_000_000
    nodes = {"node_id": np.arange(n), "label": rng.integers(0, 3, n)}
    edges = {"src": rng.integers(0, n, rows), "dst": rng.integers(0, n, rows)}
    for name, columns in (("nodes", nodes), ("edges", edges)):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    sources = Sources(*(str(tmp_path / f"{n}.parquet") for n in ("nodes", "edges")))
    chosen = load_settings(overrides=["columns.features=null"])
    began = time.process_time()
    profile_inputs(sources, chosen)
    seconds = time.process_time() - began
    record_property("seconds", seconds)
    assert seconds < 10
