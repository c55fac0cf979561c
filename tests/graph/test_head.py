"""How large a table is, before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from xnq_dist.config import load_settings
from xnq_dist.errors import InputError
from xnq_dist.graph.head import table_size


def test_a_small_csv_is_taken_for_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("src,dst\n1,2\n")
    assert table_size(str(path), load_settings(), "edges") == (1, 0)
    path.write_text("src,dst\n" + "1,2\n" * 100)
    assert table_size(str(path), load_settings(), "edges")[0] > 1
    for text, said in (
        ("src,dst\n", "has no rows: the edge table must not be empty"),
        ("src,dst", "is not a CSV file that can be read"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            table_size(str(path), load_settings(), "edges")
