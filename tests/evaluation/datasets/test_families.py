"""Families of similar graphs."""

from __future__ import annotations

import pytest

from tests.conftest import write_graph
from xnq_dist.core.errors import InputError
from xnq_dist.evaluation.comparison import find_data
from xnq_dist.evaluation.datasets import family_of
from xnq_dist.evaluation.task import TaskSource


def test_twitch_and_cora_are_families_and_other_graphs_their_own():
    families = {
        "cora": ("cora", "cora-2", "cora-multi"),
        "twitch": ("twitch-de", "twitch-engb", "twitch-ptbr"),
        "facebook100": ("facebook100-johnshopkins55",),
        "squirrel-filtered": ("squirrel-filtered",),
        "minesweeper": ("minesweeper",),
        "twitchy": ("twitchy",),
    }
    for family, names in families.items():
        assert {family_of(name) for name in names} == {family}


def test_graph_of_the_data_folder_is_found_by_its_name(tmp_path, monkeypatch):
    write_graph(tmp_path / "twitch-es", nodes=60, edges=200)
    monkeypatch.setenv("XNQ_DATA_DIR", str(tmp_path))
    tables, task = find_data("twitch-es", None, None)
    assert tables.nodes == str(tmp_path / "twitch-es" / "nodes.parquet")
    assert task == TaskSource("twitch-es")
    with pytest.raises(InputError, match="name a folder with"):
        find_data("twitch-xx", None, None)
