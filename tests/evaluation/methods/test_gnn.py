"""GCN, GAT and GIN: layers, training, early stopping, errors."""

from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from scipy.sparse import csr_array

from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.evaluation.methods.gnn import (
    GnnSettings,
    Kind,
    gnn_logits,
    require_gnn,
)

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
        matrix = csr_array(
            (np.ones(len(source), np.float32), (target, source)), shape=(nodes, nodes)
        )
        self.indptr = matrix.indptr.astype(np.int64)
        self.indices = matrix.indices.astype(np.int64)
        self.dense = matrix.toarray().astype(np.float64)
        self.features = rng.standard_normal((nodes, 4)).astype(np.float32)
        self.features[:, 0] += 0.8 * self.truth
        role = rng.permutation(nodes) % 4
        self.labels = np.where(role == 0, self.truth, -1).astype(np.int32)
        self.stop = np.where(role == 1, self.truth, -1).astype(np.int32)
        self.rest = role > 1

    def train(self, kind="gcn", settings=QUICK, seed=0, **other):
        given = {
            "indptr": self.indptr,
            "indices": self.indices,
            "features": self.features,
            "labels": self.labels,
            "stop_labels": self.stop,
            "n_classes": 2,
        }
        return gnn_logits(kind, 2, 16, seed=seed, settings=settings, **given | other)


@pytest.fixture(scope="module")
def graph():
    return Planted()


def dense_forward(kind, graph, network):
    """The network's logits with dense matrices, from the published formulas."""
    hidden = graph.features.astype(np.float64)
    n = len(hidden)
    adjacency = graph.dense
    closed = np.maximum(adjacency, np.eye(n))
    for layer in network.layers:
        weights = {
            name: value.detach().numpy().astype(np.float64)
            for name, value in layer.named_parameters()
        }
        if kind == "gcn":
            scale = 1 / np.sqrt(closed.sum(1))
            norm = scale[:, None] * closed * scale[None, :]
            hidden = norm @ hidden @ weights["lin.weight"].T + weights["bias"]
        elif kind == "gat":
            projected = hidden @ weights["lin.weight"].T
            score = (projected @ weights["att_dst"].ravel())[:, None]
            score = score + (projected @ weights["att_src"].ravel())[None, :]
            score = np.where(score > 0, score, 0.2 * score)
            share = np.where(closed > 0, np.exp(score), 0.0)
            share /= share.sum(1, keepdims=True)
            hidden = share @ projected + weights["bias"]
        else:
            summed = (1 + weights["eps"]) * hidden + adjacency @ hidden
            inner = summed @ weights["nn.0.weight"].T + weights["nn.0.bias"]
            inner = (inner - inner.mean(0)) / np.sqrt(inner.var(0) + 1e-5)
            inner = np.maximum(inner * weights["nn.1.weight"] + weights["nn.1.bias"], 0)
            hidden = inner @ weights["nn.3.weight"].T + weights["nn.3.bias"]
        hidden = np.maximum(hidden, 0)
    readout = network.readout
    weight, bias = readout.weight.detach().numpy(), readout.bias.detach().numpy()
    return hidden @ weight.T + bias


@needs_gnn
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [3, 16])
def test_forward_is_the_published_formula_by_dense_matrices(kind, width, graph):
    # Width 3 is below the four features: GAT then projects before it sums.
    from xnq_dist.evaluation.methods.gnn_models import build

    network = build(
        kind, 2, width, graph.indptr, graph.indices, graph.features, 3, seed=1
    )
    found = network().detach().numpy()
    np.testing.assert_allclose(
        found, dense_forward(kind, graph, network), rtol=2e-4, atol=2e-5
    )


def doubled(network):
    """Convert a network to float64, so that sums that cancel can be compared."""
    network.double()
    network.features = network.features.double()
    for layer in network.layers:
        for name in ("summed", "features"):
            if getattr(layer, name, None) is not None:
                setattr(layer, name, getattr(layer, name).double())
    adjacency = layer.adjacency  # one for all layers
    adjacency.matrix = adjacency.matrix.double()
    adjacency.transpose = adjacency.transpose.double()


@needs_gnn
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_pytorch_geometric(kind, graph):
    import torch
    from torch_geometric.nn import GATConv, GCNConv, GINConv

    from xnq_dist.evaluation.methods.gnn_models import build

    network = build(kind, 3, 8, graph.indptr, graph.indices, graph.features, 2, seed=1)
    weights = torch.from_numpy(np.random.default_rng(0).standard_normal((240, 2)))
    doubled(network)

    def gradients(logits):
        network.zero_grad()
        (logits * weights).sum().backward()
        return [p.grad.clone() for p in network.parameters()]

    ours = gradients(network())
    targets = np.repeat(np.arange(240), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([graph.indices, targets]))
    hidden = torch.from_numpy(graph.features).double()
    for layer in network.layers:
        if kind == "gcn":
            stock = GCNConv(1, 1)
            stock.lin, stock.bias = layer.lin, layer.bias
        elif kind == "gat":
            stock = GATConv(1, 8)
            stock.lin, stock.bias = layer.lin, layer.bias
            stock.att_src, stock.att_dst = layer.att_src, layer.att_dst
        else:
            stock = GINConv(torch.nn.Identity(), train_eps=True)
            stock.nn, stock.eps = layer.nn, layer.eps
        hidden = torch.relu(stock(hidden, edges))
    for mine, theirs in zip(ours, gradients(network.readout(hidden)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)


@needs_gnn
@pytest.mark.parametrize("kind", KINDS)
def test_learns_two_planted_blocks(kind, graph):
    found = graph.train(kind)
    right = found.logits.argmax(1)[graph.rest] == graph.truth[graph.rest]
    assert right.mean() > 0.8
    assert found.logits.shape == (240, 2)
    assert found.logits.dtype == np.float64
    assert found.device == "cpu"


@needs_gnn
@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bits_and_another_seed_others(kind, graph):
    short = replace(QUICK, max_epochs=6)
    first, again, other = (graph.train(kind, short, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.logits, again.logits)
    assert not np.array_equal(first.logits, other.logits)


@needs_gnn
def test_trainings_in_threads_draw_independently(graph):
    short = replace(QUICK, max_epochs=6)
    alone = [graph.train("gat", short, seed).logits for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = pool.map(lambda seed: graph.train("gat", short, seed), range(4))
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, many.logits)


@needs_gnn
def test_state_of_pytorch_is_left_as_it_was(graph):
    import torch

    state, threads = torch.get_rng_state(), torch.get_num_threads()
    graph.train(settings=replace(QUICK, max_epochs=4, threads=threads + 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


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
    shorter = replace(settings, max_epochs=found.best_epoch)
    np.testing.assert_array_equal(
        graph.train(settings=shorter, stop_labels=noise).logits, found.logits
    )


@needs_gnn
def test_nodes_without_a_role_teach_nothing(graph):
    # The arguments contain training labels, but not the classes of other nodes.
    short = replace(QUICK, max_epochs=6)
    base = graph.train(settings=short)
    hidden = graph.labels.copy()
    hidden[graph.rest] = -7
    same = graph.train(settings=short, labels=hidden)
    np.testing.assert_array_equal(base.logits, same.logits)
    flipped = graph.labels.copy()
    first = np.flatnonzero(flipped >= 0)[0]
    flipped[first] = 1 - flipped[first]
    changed = graph.train(settings=short, labels=flipped)
    assert not np.array_equal(base.logits, changed.logits)


@needs_gnn
@pytest.mark.parametrize("kind", KINDS)
def test_graph_without_edges_trains_on_features(kind, graph):
    found = graph.train(
        kind,
        replace(QUICK, max_epochs=4),
        indptr=np.zeros(241, np.int64),
        indices=np.zeros(0, np.int64),
    )
    assert np.isfinite(found.logits).all()


@needs_gnn
def test_own_loop_counts_once_in_a_closed_neighbourhood():
    from xnq_dist.evaluation.methods.gnn_models import Adjacency

    # 0 -> 0 and 1 -> 0: node 0 has a self-loop, node 1 gets one.
    indptr, indices = np.array([0, 2, 2]), np.array([0, 1])
    closed = Adjacency.closed(indptr, indices).matrix.to_dense().numpy()
    np.testing.assert_array_equal(closed, [[1, 1], [0, 1]])
    plain = Adjacency.plain(indptr, indices).matrix.to_dense().numpy()
    np.testing.assert_array_equal(plain, [[1, 1], [0, 0]])


@needs_gnn
def test_three_classes_have_three_columns(graph):
    labels = graph.labels.copy()
    labels[np.flatnonzero(labels == 1)[:10]] = 2
    found = graph.train(
        settings=replace(QUICK, max_epochs=2), labels=labels, n_classes=3
    )
    assert found.logits.shape == (240, 3)


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


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (("torch",), "PyTorch, which is"),
        (("torch_geometric",), "PyTorch Geometric, which is"),
        (NAMES, "PyTorch and PyTorch Geometric, which are"),
    ],
)
def test_missing_extra_is_refused_in_one_line(missing, said, monkeypatch, graph):
    find = importlib.util.find_spec
    known = dict.fromkeys(NAMES, find("json"))
    known.update(dict.fromkeys(missing))
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: known.get(name, find("json"))
    )
    with pytest.raises(SettingsError) as caught:
        graph.train()
    assert str(caught.value) == (
        f"gcn, gat and gin need {said} not installed: pip install 'xnq-dist[gnn]'"
    )


def test_import_leaves_pytorch_alone():
    import subprocess

    code = "import sys, xnq_dist.evaluation.methods.gnn; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@needs_gnn
def test_an_installed_extra_is_accepted():
    require_gnn()
