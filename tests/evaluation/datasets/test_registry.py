"""The registry: every task has a graph, every file an address and expected counts."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xnq_dist.core.errors import SettingsError
from xnq_dist.evaluation.datasets.download import check_url
from xnq_dist.evaluation.datasets.known_graphs import (
    DATASETS,
    dataset_of,
    find,
    has_features,
    known_tasks,
)

SOURCES = [
    pytest.param(source, id=f"{dataset.name}-{source.name}")
    for dataset in DATASETS.values()
    for source in dataset.sources
]


def test_the_paper_has_eight_tasks_on_seven_graphs():
    tasks = known_tasks()
    assert len(tasks) == 8
    assert {task.folder for task in tasks.values()} == set(DATASETS)
    for name, task in tasks.items():
        assert task.name == name
        assert task.splits in DATASETS[task.folder].splits


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_is_complete(source):
    names = [file.name for file in source.files]
    assert len(set(names)) == len(names)
    for file in source.files:
        check_url(file.url)
        assert file.url.startswith("https://")
        assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.size is None or file.size > 0
        short = [member.rsplit("/", 1)[-1] for member in file.members]
        assert len(set(short)) == len(short)
    expected = source.expected
    if expected.class_counts is not None:
        assert len(expected.class_counts) == expected.classes
        assert sum(expected.class_counts) == expected.nodes


@pytest.mark.data
def test_recorded_counts_are_those_of_the_stored_graphs(data_folder):
    for folder in sorted(data_folder.iterdir()):
        if not (folder / "meta.json").exists() or folder.name not in DATASETS:
            continue
        meta = json.loads((folder / "meta.json").read_text())
        expected = DATASETS[folder.name].sources[0].expected
        assert expected.nodes == meta["num_nodes"]
        assert expected.edges == meta["num_edges_directed_rows"]
        assert expected.features == meta["num_features"] or not meta["num_features"]
        assert list(expected.class_counts or ()) == list(meta["class_counts"].values())


def test_a_graph_is_found_by_task_and_folder_name(tmp_path, monkeypatch):
    folder = tmp_path / "cora"
    folder.mkdir()
    (folder / "nodes.parquet").touch()
    monkeypatch.setenv("XNQ_DATA_DIR", str(tmp_path))
    assert find("cora-2") is None  # an incomplete folder does not count
    (folder / "edges.parquet").touch()
    for name in ("cora", "cora-2", "cora-multi"):
        assert find(name) == folder
        assert find(name, tmp_path / "elsewhere") is None
    assert find("genius") is None
    monkeypatch.delenv("XNQ_DATA_DIR")
    assert find("cora") is None
    assert find("cora", tmp_path) == folder


def test_unknown_graphs_are_refused_with_the_known_ones():
    with pytest.raises(SettingsError, match=r"'karate'.*cora-2, cora-multi, genius"):
        dataset_of("karate")


def test_a_node_table_without_features_is_recognised(tmp_path):
    pq.write_table(pa.table({"node_id": [1]}), tmp_path / "nodes.parquet")
    assert not has_features(tmp_path)
    pq.write_table(pa.table({"features": [1]}), tmp_path / "nodes.parquet")
    assert has_features(tmp_path)
