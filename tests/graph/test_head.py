"""The size of a table, before it is read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError
from xnq_dist.graph.head import has_weights, labelled_rows, table_size


def test_a_small_csv_has_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("src,dst\n1,2\n")
    assert table_size(str(path), load_settings(), "edges") == (1, 0)
    path.write_text("src,dst\n" + "1,2\n" * 100)
    assert table_size(str(path), load_settings(), "edges")[0] > 1
    for text in ("src,dst\n", "src,dst"):
        path.write_text(text)
        with pytest.raises(InputError, match=r"edge table .* has no rows: check that"):
            table_size(str(path), load_settings(), "edges")


def test_labels_are_counted_as_they_occur(tmp_path: Path) -> None:
    found = load_settings()
    path = str(tmp_path / "nodes.parquet")
    table = pa.table({"node_id": range(6), "label": [1, None, 0, None, None, 1]})
    pq.write_table(table, path, row_group_size=2)
    assert labelled_rows(path, found) == 3
    pq.write_table(table, path, write_statistics=False)
    assert labelled_rows(path, found) is None
    text = tmp_path / "nodes.csv"
    text.write_text("node_id,label\n1,1\n2,\n")
    assert labelled_rows(str(text), found) is None


def test_weights_are_counted_as_they_occur(tmp_path: Path) -> None:
    path = str(tmp_path / "edges.parquet")
    pq.write_table(pa.table({"src": [1], "dst": [2]}), path)
    assert not has_weights(path, load_settings())
    assert has_weights(path, load_settings(overrides=["input.duplicates=sum"]))
    assert has_weights(path, load_settings(overrides=["columns.weight=dst"]))
