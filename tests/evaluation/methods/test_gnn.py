"""GCN, GAT and GIN: training, early stopping, errors."""

from __future__ import annotations

import importlib.util
from typing import get_args

import numpy as np
import pytest
from scipy.sparse import csr_array

from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.evaluation.methods import gnn
from xnq_dist.evaluation.methods.gnn import Kind, gnn_logits

KINDS = get_args(Kind)
NAMES = ("torch", "torch_geometric")
INSTALLED = all(importlib.util.find_spec(name) for name in NAMES)


def needs_gnn(test):
    """The test needs the extra ``gnn``."""
    skip = pytest.mark.skipif(not INSTALLED, reason="needs the extra `gnn`")
    return pytest.mark.gnn(skip(test))


class Planted:
    """Two blocks, with most edges inside; the features are weakly informative."""

    def __init__(self, nodes=240, degree=8, seed=3):
        rng = np.random.default_rng(seed)
        self.truth = rng.integers(0, 2, nodes).astype(np.int32)
        source, target = rng.integers(0, nodes, (2, 4 * nodes * degree))
        alike = self.truth[source] == self.truth[target]
        keep = alike | (rng.random(len(alike)) < 0.1)
        pairs = np.unique(np.stack([target, source])[:, keep], axis=1)
        chosen = rng.permutation(pairs.shape[1])[: nodes * degree]
        target, source = pairs[:, np.sort(chosen)]
        self.matrix = csr_array(
            (np.ones(len(source), np.float32), (target, source)), shape=(nodes, nodes)
        )
        self.features = rng.standard_normal((nodes, 4)).astype(np.float32)
        self.features[:, 0] += 0.8 * self.truth
        role = rng.permutation(nodes) % 4
        self.labels = np.where(role == 0, self.truth, -1).astype(np.int32)
        self.stop = np.where(role == 1, self.truth, -1).astype(np.int32)
        self.rest = role > 1

    def train(self, kind="gcn", seed=0, **other):
        given = {
            "adjacency": self.matrix,
            "features": self.features,
            "labels": self.labels,
            "stop_labels": self.stop,
            "n_classes": 2,
        }
        return gnn_logits(kind, 2, 16, seed=seed, **given | other)


@pytest.fixture(scope="module")
def graph():
    return Planted()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gnn, "MAX_EPOCHS", 40)
    monkeypatch.setattr(gnn, "CHECK_EVERY", 2)


@needs_gnn
@pytest.mark.parametrize("kind", KINDS)
def test_learns_two_planted_blocks_with_the_same_bits_for_a_seed(kind, graph):
    import torch

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    found = graph.train(kind)
    right = found.argmax(1)[graph.rest] == graph.truth[graph.rest]
    assert right.mean() > 0.8
    assert found.shape == (240, 2)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, graph.train(kind))
    assert not np.array_equal(found, graph.train(kind, seed=1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@needs_gnn
@pytest.mark.parametrize("kind", KINDS)
def test_messages_follow_edges_to_their_targets(kind, graph, monkeypatch):
    """Features of nodes that no path leads from do not change a node's logits."""
    names = ("MAX_EPOCHS", "CHECK_EVERY", "LEARNING_RATE", "DROPOUT")
    for name, value in zip(names, (1, 1, 0.0, 0.0), strict=True):
        monkeypatch.setattr(gnn, name, value)
    indptr = np.ones(241, np.int64)  # one edge: 1 -> 0
    indptr[0] = 0
    edge = csr_array((np.ones(1), np.array([1]), indptr), shape=(240, 240))
    other = graph.features.copy()
    other[1] += 1
    first, second = (
        graph.train(kind, features=x, adjacency=edge) for x in (graph.features, other)
    )
    moved = np.flatnonzero(np.abs(first - second).max(axis=1) > 1e-3)
    if kind != "gin":  # whose normalisation is over all nodes
        assert moved.tolist() == [0, 1]
    assert {0, 1} <= set(moved.tolist())


@needs_gnn
def test_loss_that_is_no_number_stops_the_training(graph):
    huge = np.full_like(graph.features, 3e38)
    with pytest.raises(StageError, match="gcn with 2 layers of width 16 failed in epo"):
        graph.train(features=huge)


@pytest.mark.parametrize("missing", NAMES)
def test_missing_extra_is_refused_in_one_line(missing, monkeypatch, graph):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == missing else find("json"),
    )
    with pytest.raises(SettingsError) as caught:
        graph.train()
    assert str(caught.value) == (
        f"gcn, gat and gin need {missing}, which is not installed: "
        "pip install 'xnq-dist[gnn]'"
    )
