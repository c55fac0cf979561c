"""The size of a table, before it is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError
from xnq_dist.graph import head
from xnq_dist.graph.head import (
    has_weights,
    labelled_rows,
    reversed_share,
    table_size,
)


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


@pytest.mark.parametrize("form", ["random", "sorted"])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize(
    ("reversed_rows", "expected"), [(0, 0.0), (1500, 2 / 3), (3000, 1.0)]
)
def test_rows_say_whether_each_edge_is_there_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    text: bool,
    reversed_rows: int,
    expected: float,
) -> None:
    rng = np.random.default_rng(4)
    ends = np.unique(rng.integers(0, 400, (9000, 2)), axis=0)
    ends = rng.permutation(ends[ends[:, 0] < ends[:, 1]])[:3000]
    ends = np.concatenate([ends, ends[:reversed_rows, ::-1], [[7, 7]]])
    ends = rng.permutation(ends) if form == "random" else np.unique(ends, axis=0)
    if text:
        ends = ends.astype(str)
    path = str(tmp_path / "edges.parquet")
    pq.write_table(pa.table({"src": ends[:, 0], "dst": ends[:, 1]}), path)
    settings = load_settings(overrides=[])
    assert reversed_share(path, settings, len(ends)) == pytest.approx(
        expected, abs=0.01
    )
    # From some of the rows.
    monkeypatch.setattr(head, "SAMPLE", 1200)
    found = reversed_share(path, settings, len(ends))
    if form == "random" or expected in (0, 1):
        assert found == pytest.approx(expected, abs=0.2)
    assert found < 1 or expected == 1
