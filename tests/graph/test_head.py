"""The size of a table, before it is read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError
from xnq_dist.graph.head import count_tables
from xnq_dist.graph.sources import Sources
from xnq_dist.graph.tables import open_table


def test_a_small_csv_has_its_rows(tmp_path):
    path = tmp_path / "edges.csv"

    def rows(text):
        path.write_text(text)
        return open_table(path, "edge table").n_rows

    assert rows("src,dst\n1,2\n") == 1
    assert rows("src,dst\n" + "1,2\n" * 100) > 1
    for text in ("src,dst\n", "src,dst"):
        with pytest.raises(InputError, match=r"edge table .* has no rows: check that"):
            rows(text)


def test_labels_are_counted_as_they_occur(tmp_path):
    def labelled(name):
        sources = Sources(str(tmp_path / name), str(tmp_path / "edges.parquet"))
        return count_tables(sources, load_settings()).labelled

    path = tmp_path / "nodes.parquet"
    pq.write_table(pa.table({"src": [1], "dst": [2]}), tmp_path / "edges.parquet")
    table = pa.table({"node_id": range(6), "label": [1, None, 0, None, None, 1]})
    pq.write_table(table, path, row_group_size=2)
    assert labelled(path.name) == 3
    pq.write_table(table, path, write_statistics=False)
    assert labelled(path.name) is None
    (tmp_path / "nodes.csv").write_text("node_id,label\n1,1\n2,\n")
    assert labelled("nodes.csv") is None


def test_weights_are_counted_as_they_occur(tmp_path):
    nodes, edges = (str(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    pq.write_table(pa.table({"node_id": [1, 2], "label": [0, 1]}), nodes)
    pq.write_table(pa.table({"src": [1], "dst": [2]}), edges)

    def weighted(*overrides):
        settings = load_settings(overrides=overrides)
        return count_tables(Sources(nodes, edges), settings).weighted

    assert not weighted()
    assert weighted("input.duplicates=sum")
    assert weighted("columns.weight=dst")
