"""GCN, GAT and GIN: training, early stopping, errors."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from scipy.sparse import csr_array

from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.evaluation.methods.gnn import GnnSettings, Kind, gnn_logits

KINDS = get_args(Kind)
NAMES = ("torch", "torch_geometric")
INSTALLED = all(importlib.util.find_spec(name) for name in NAMES)
QUICK = GnnSettings(max_epochs=40, patience=20, check_every=2, device="cpu")


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

    def train(self, kind="gcn", settings=QUICK, seed=0, **other):
        given = {
            "indptr": self.matrix.indptr,
            "indices": self.matrix.indices,
            "features": self.features,
            "labels": self.labels,
            "stop_labels": self.stop,
            "n_classes": 2,
        }
        return gnn_logits(kind, 2, 16, seed=seed, settings=settings, **given | other)


@pytest.fixture(scope="module")
def graph():
    return Planted()


@needs_gnn
@pytest.mark.parametrize("kind", KINDS)
def test_learns_two_planted_blocks_with_the_same_bits_for_a_seed(kind, graph):
    import torch

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    found = graph.train(kind)
    right = found.logits.argmax(1)[graph.rest] == graph.truth[graph.rest]
    assert right.mean() > 0.8
    assert found.logits.shape == (240, 2)
    assert found.logits.dtype == np.float64
    np.testing.assert_array_equal(found.logits, graph.train(kind).logits)
    assert not np.array_equal(found.logits, graph.train(kind, seed=1).logits)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@needs_gnn
@pytest.mark.parametrize("kind", KINDS)
def test_messages_follow_edges_to_their_targets(kind, graph):
    """Features of nodes that no path leads from do not change a node's logits."""
    alone = {"indptr": np.zeros(241, np.int64), "indices": np.zeros(0, np.int64)}
    alone["indptr"][1:] = 1  # one edge: 1 -> 0
    alone["indices"] = np.array([1])
    short = replace(QUICK, max_epochs=1, check_every=1, learning_rate=0.0, dropout=0.0)
    other = graph.features.copy()
    other[1] += 1
    first, second = (
        graph.train(kind, short, features=x, **alone) for x in (graph.features, other)
    )
    moved = np.flatnonzero(np.abs(first.logits - second.logits).max(axis=1) > 1e-3)
    if kind != "gin":  # whose normalisation is over all nodes
        assert moved.tolist() == [0, 1]
    assert {0, 1} <= set(moved.tolist())


@needs_gnn
def test_the_best_epoch_answers(graph):
    # Random stop labels: their loss soon rises as the training labels are fitted.
    rng = np.random.default_rng(0)
    noise = np.where(graph.stop >= 0, rng.permutation(graph.truth), -1)
    settings = replace(QUICK, max_epochs=200, patience=10, check_every=2, dropout=0.0)
    found = graph.train(settings=settings, stop_labels=noise.astype(np.int32))
    assert found.best_epoch < found.epochs == found.best_epoch + 10
    rows = np.flatnonzero(noise >= 0)
    logits = found.logits[rows]
    log_sum = np.log(np.exp(logits).sum(1))
    loss = (log_sum - logits[np.arange(len(rows)), noise[rows]]).mean()
    assert found.best_loss == pytest.approx(loss, abs=1e-6)


@needs_gnn
def test_nodes_without_a_role_teach_nothing(graph):
    # The arguments contain training labels, but not the classes of other nodes.
    short = replace(QUICK, max_epochs=6)
    base = graph.train(settings=short)
    hidden = graph.labels.copy()
    hidden[graph.rest] = -7
    same = graph.train(settings=short, labels=hidden)
    np.testing.assert_array_equal(base.logits, same.logits)


@needs_gnn
def test_loss_that_is_no_number_stops_the_training(graph):
    huge = np.full_like(graph.features, 3e38)
    with pytest.raises(StageError, match="gcn with 2 layers of width 16 failed in epo"):
        graph.train(features=huge)


@needs_gnn
def test_missing_cuda_device_is_refused(graph):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(SettingsError, match="finds no CUDA device: set device=cpu"):
        graph.train(settings=replace(QUICK, device="cuda"))


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


def test_import_leaves_pytorch_alone():
    import subprocess

    code = "import sys, xnq_dist.evaluation.methods.gnn; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
