"""The paper's graphs: families, found on this machine, or downloaded by PyG."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.conftest import write_graph
from xnq_dist.core.errors import InfrastructureError, InputError, SettingsError
from xnq_dist.evaluation import datasets
from xnq_dist.evaluation.comparison import find_data
from xnq_dist.evaluation.datasets import GRAPHS, download, family_of
from xnq_dist.evaluation.task import TaskSource


class Values(np.ndarray):
    """An array in a tensor's place."""

    def numpy(self):
        return np.asarray(self)


def raw_graph(nodes=60, edges=90):
    rng = np.random.default_rng(0)
    values = {
        "x": rng.normal(size=(nodes, 3)),
        "y": rng.permutation(np.arange(nodes) % 3),
        "edge_index": rng.integers(0, nodes, (2, edges)),
    }
    values["y"][values["y"] == 0] = -1
    tensors = {name: value.view(Values) for name, value in values.items()}
    return SimpleNamespace(num_nodes=nodes, num_edges=edges, **tensors)


@pytest.fixture
def pyg(monkeypatch):
    """PyTorch Geometric with one data set; its attribute ``data`` is the graph."""
    module = ModuleType("torch_geometric")
    module.data = raw_graph()

    def data_set(root, name):
        if isinstance(module.data, Exception):
            raise module.data
        assert name == "Cora"
        return [module.data]

    monkeypatch.setattr(datasets.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setitem(sys.modules, "torch_geometric", module)
    module.datasets = SimpleNamespace(Planetoid=data_set)
    module.transforms = None
    known = datasets.KnownGraph("Planetoid", 60, 90, {"name": "Cora"})
    monkeypatch.setitem(GRAPHS, "cora", known)
    return module


def test_a_graph_is_not_downloaded_if_both_tables_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.importlib.util, "find_spec", lambda _: None)
    (tmp_path / "cora").mkdir()
    (tmp_path / "cora" / "nodes.parquet").touch()
    with pytest.raises(SettingsError, match=r"pip install 'xnq-dist\[gnn\]', or put"):
        download("cora", tmp_path)
    (tmp_path / "cora" / "edges.parquet").touch()
    assert download("cora", tmp_path) == tmp_path / "cora"


def test_a_downloaded_graph_becomes_tables(pyg, tmp_path):
    folder = download("cora", tmp_path)
    nodes, edges = (
        pq.read_table(folder / f"{name}.parquet") for name in ("nodes", "edges")
    )
    assert [*tmp_path.iterdir()] == [folder]
    data = pyg.data
    assert nodes["label"].to_numpy().tolist() == np.maximum(data.y, 0).tolist()
    features = nodes["features"].combine_chunks().flatten().to_numpy()
    np.testing.assert_allclose(features.reshape(60, 3), data.x, rtol=1e-6)
    assert edges["src"].to_numpy().tolist() == data.edge_index[0].tolist()


def test_a_graph_with_other_counts_than_the_papers_is_refused(pyg, tmp_path):
    pyg.data = raw_graph(60, 91)
    with pytest.raises(InputError, match="60 nodes and 91 edges, the paper's graph 60"):
        download("cora", tmp_path)
    assert not (tmp_path / "cora").exists()


def test_a_failed_download_names_the_folder_for_the_tables(pyg, tmp_path):
    pyg.data = RuntimeError("no network")
    with pytest.raises(InfrastructureError, match=r"\(no network\): try again, or put"):
        download("cora", tmp_path)


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
