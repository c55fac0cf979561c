"""Trained graph networks instead of the reservoir: GCN, GAT and GIN.

This is the paper's ablation of the node embedder: two to four layers of width 128 or
256, then a linear readout, trained end to end on the complete graph to minimise the
mean log-loss of the training labels. The epoch with the lowest log-loss on the
validation labels is used. Calibration labels are held out, so that all methods have the
same labels in a fold. Layers and models are PyTorch Geometric's (extra ``gnn``), which
is imported when needed; this process trains them, one after another.

The paper describes GCN with the mean over the closed neighbourhood and a sigmoid, and
does not specify training. Here the layers have ReLU: GCN with the usual symmetric
normalisation, GAT with one head, GIN with a two-layer perceptron.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from xnq_dist.core.arrays import Floats, Floats32, Ints32
from xnq_dist.core.backend import missing
from xnq_dist.core.errors import SettingsError, StageError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Kind", "gnn_logits", "require_gnn"]

Kind = Literal["gcn", "gat", "gin"]
OPTIONS: dict[str, dict[str, Any]] = {
    "gcn": {"cached": True},
    "gat": {"heads": 1},
    # The batch is the complete graph, so evaluation uses its statistics as well.
    "gin": {
        "train_eps": True,
        "norm": "batch_norm",
        "norm_kwargs": {"track_running_stats": False},
    },
}
"""Options of PyTorch Geometric's models."""


LEARNING_RATE, WEIGHT_DECAY, DROPOUT = 0.01, 1e-4, 0.5
"""Of Adam, of the L2 penalty in its gradient, of hidden values in training."""
MAX_EPOCHS, PATIENCE = 200, 30
"""Training ends after `PATIENCE` epochs without a lower stop log-loss."""
CHECK_EVERY = 5
"""Number of epochs between computations of the stop log-loss, each of which takes a
third of the time of an epoch."""


def require_gnn() -> None:
    """Check that PyTorch and PyTorch Geometric are installed, without importing them.

    Raises
    ------
    SettingsError
        When one of them is not installed.
    """
    without = missing("torch", "torch_geometric")
    if without:
        raise SettingsError(
            f"gcn, gat and gin need {without[0]}, which is not installed: "
            "pip install 'xnq-dist[gnn]'"
        )


def gnn_logits(
    kind: Kind,
    layers: int,
    width: int,
    adjacency: csr_array[Any],
    features: Floats32,
    labels: Ints32,
    stop_labels: Ints32,
    n_classes: int,
    seed: int,
) -> Floats:
    """Train a network on the complete graph; logits of its best epoch, shape (N, C).

    A CUDA device is used if there is one. On a CPU, the same arguments give the same
    bits; PyTorch's random state is left as it was.

    Parameters
    ----------
    kind
        Type of the layers: ``gcn``, ``gat`` or ``gin``.
    layers, width
        Number of message-passing layers, and number of columns of each.
    adjacency
        In-neighbours of node v in row v, shape (N, N); weights are not used.
    features
        Shape (N, F).
    labels, stop_labels
        Class codes for training and for early stopping, below 0 for other nodes, shape
        (N,).
    n_classes
        Number of classes, C.
    seed
        Seed of initial parameters and dropout.

    Raises
    ------
    SettingsError
        When the extra ``gnn`` is not installed.
    StageError
        When the loss is not a finite number.
    """
    require_gnn()
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with _seeded(seed):
        from torch_geometric.nn import models

        edges = torch.sparse_csr_tensor(
            torch.from_numpy(np.asarray(adjacency.indptr, np.int64)),
            torch.from_numpy(np.asarray(adjacency.indices, np.int64)),
            torch.ones(adjacency.nnz),
            (len(features), len(features)),
        ).to(device)
        x = torch.from_numpy(np.array(features, np.float32)).to(device)
        # With `jk`, every layer has ReLU and dropout, and a linear readout follows.
        network = getattr(models, kind.upper())(
            x.shape[1],
            width,
            layers,
            n_classes,
            dropout=DROPOUT,
            jk="last",
            **OPTIONS[kind],
        ).to(device)
        try:
            return _train(network, x, edges, labels, stop_labels)
        except ArithmeticError as error:
            raise StageError(
                f"training {kind} with {layers} layers of width {width} failed in "
                f"{error}: scale the features"
            ) from error


def _train(
    network: Any,
    x: Any,
    edges: Any,
    labels: Ints32,
    stop_labels: Ints32,
) -> Floats:
    """Train until the stop labels' log-loss no longer falls.

    Raises an `ArithmeticError` with the epoch when a loss is not finite.
    """
    import torch
    from torch.nn.functional import cross_entropy

    (rows, targets), (stop_rows, stop_targets) = (
        (torch.from_numpy(np.flatnonzero(codes >= 0)), torch.from_numpy(codes).long())
        for codes in (labels, stop_labels)
    )
    targets, stop_targets = targets[rows].to(x.device), stop_targets[stop_rows]
    optimiser = torch.optim.Adam(
        network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY
    )
    best: Floats = np.empty(0)
    best_loss, best_epoch = math.inf, 0
    for epoch in range(1, MAX_EPOCHS + 1):
        network.train()
        optimiser.zero_grad()
        loss = cross_entropy(network(x, edges)[rows], targets)
        loss.backward()
        optimiser.step()
        if epoch % CHECK_EVERY and epoch != MAX_EPOCHS:
            continue
        network.eval()
        with torch.no_grad():
            logits = network(x, edges).double().cpu()
        stop_loss = float(cross_entropy(logits[stop_rows], stop_targets))
        if not math.isfinite(stop_loss) or not math.isfinite(float(loss.detach())):
            raise ArithmeticError(f"epoch {epoch}, whose loss is not a finite number")
        if stop_loss < best_loss:
            best, best_loss, best_epoch = logits.numpy(), stop_loss, epoch
        elif epoch - best_epoch >= PATIENCE:
            break
    return best


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from the seed, with one thread, and restore PyTorch's state afterwards."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(), warnings.catch_warnings():
            # On import PyG scripts functions, which PyTorch deprecates; the layout of
            # its sparse tensors is in beta state.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.filterwarnings("ignore", "Sparse", UserWarning)
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
