"""Trained graph networks instead of the reservoir: GCN, GAT and GIN.

This is the paper's ablation of the node embedder: two to four layers of width 128 or
256, then a linear readout, trained end to end on the complete graph to minimise the
mean log-loss of the training labels. The epoch with the lowest log-loss on the
validation labels is used. Calibration labels are held out, so that all methods have the
same labels in a fold. PyTorch and PyTorch Geometric (extra ``gnn``) are imported when
needed.

The paper describes GCN with the mean over the closed neighbourhood and a sigmoid, and
does not specify training. Here the layers are PyTorch Geometric's, with ReLU: GCN with
the usual symmetric normalisation, GAT with one head, GIN with a two-layer perceptron.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import SettingsError, StageError
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.methods.method_interface import Configuration, Scores
from xnq_dist.evaluation.split_fit import FeatureRows
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph.layout import read_adjacency

if TYPE_CHECKING:
    from torch import Tensor

    from xnq_dist.evaluation.methods.gnn_models import GraphNetwork

__all__ = [
    "GnnResult",
    "GnnSettings",
    "Kind",
    "gnn_logits",
    "require_gnn",
    "trained_scores",
    "training_settings",
]

log = logging.getLogger(__name__)

Kind = Literal["gcn", "gat", "gin"]


@dataclass(frozen=True)
class GnnSettings:
    """Training settings, which are not part of the search."""

    learning_rate: float = 0.01
    """Learning rate of Adam."""
    weight_decay: float = 1e-4
    """L2 penalty in Adam's gradient."""
    dropout: float = 0.5
    """Share of hidden values set to 0 in training."""
    max_epochs: int = 200
    patience: int = 30
    """Training ends after this number of epochs without a lower stop log-loss."""
    check_every: int = 5
    """Number of epochs between computations of the stop log-loss, each of which takes a
    third of the time of an epoch."""
    threads: int = 1
    """Number of CPU threads; results have the same bits for the same number."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """``auto`` uses a CUDA device if there is one."""


@dataclass(frozen=True, eq=False)
class GnnResult:
    """Result of training, for all nodes."""

    logits: NDArray[np.float64]
    """Uncalibrated logits of the best epoch, shape (N, C)."""
    epochs: int
    """Number of trained epochs."""
    seconds: float
    """Wall time from the arrays to the logits."""
    best_loss: float
    """Mean log-loss of the stop labels in the best epoch."""
    device: str
    """``cpu`` or ``cuda``."""
    best_epoch: int
    """Number of the best epoch, from 1."""


def require_gnn() -> None:
    """Check that PyTorch and PyTorch Geometric are installed, without importing them.

    Raises
    ------
    SettingsError
        When one of them is not installed.
    """
    names = {"torch": "PyTorch", "torch_geometric": "PyTorch Geometric"}
    missing = [
        name
        for module, name in names.items()
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise SettingsError(
            f"gcn, gat and gin need {' and '.join(missing)}, which {verb} not "
            "installed: pip install 'xnq-dist[gnn]'"
        )


def training_settings(settings: Settings) -> dict[str, Any]:
    """Settings that a trained network depends on, besides its configuration."""
    return {"seed": settings.seed, "training": asdict(GnnSettings())}


def trained_scores(
    kind: Kind, work: EvaluationWork, configuration: Configuration, split: int
) -> Scores:
    """Train a network on one split and return its scores."""
    task = work.task()
    graph, manifest = work.graph()
    adjacency = read_adjacency(graph, manifest)
    parts = list(FeatureRows(graph, manifest).parts())
    order = np.argsort(np.concatenate([index for index, _ in parts]))
    result = gnn_logits(
        kind,
        int(configuration["layers"]),
        int(configuration["width"]),
        adjacency.indptr,
        adjacency.indices,
        np.concatenate([x for _, x in parts])[order],
        task.known(split, "train"),
        task.known(split, "validation"),
        len(task.classes),
        work.settings.seed,
    )
    held = task.rows(split, "calibration")
    target = task.rows(split, "validation", "test")
    logits = result.logits
    return Scores(held, logits[held], target, logits[target], seconds=result.seconds)


def gnn_logits(
    kind: Kind,
    layers: int,
    width: int,
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    features: NDArray[np.float32],
    labels: NDArray[np.int32],
    stop_labels: NDArray[np.int32],
    n_classes: int,
    seed: int,
    settings: GnnSettings | None = None,
) -> GnnResult:
    """Train a network on the complete graph and return the logits of all nodes.

    On a CPU the same arguments give the same bits, and PyTorch's process-wide random
    state is not changed; several threads of a process may train at the same time. On
    CUDA the initial parameters are the same, but sums may differ in their last bits.

    Parameters
    ----------
    kind
        Type of the layers: ``gcn``, ``gat`` or ``gin``.
    layers, width
        Number of message-passing layers, and number of columns of each.
    indptr, indices
        In-neighbours of each node as CSR: row v has the sources u of edges u -> v,
        shapes (N + 1,) and (M,).
    features
        Finite features, shape (N, F).
    labels
        Class codes of the training nodes, which include every class, -1 elsewhere,
        shape (N,).
    stop_labels
        Class codes of the nodes for early stopping, -1 elsewhere, shape (N,).
    n_classes
        Number of classes, C.
    seed
        Seed of the initial parameters and of dropout.
    settings
        Training settings; None: the defaults.

    Raises
    ------
    SettingsError
        Without the extra ``gnn``, or without a requested CUDA device.
    StageError
        When the loss becomes NaN or infinite.

    References
    ----------
    Kipf and Welling, ICLR 2017 (GCN); Velickovic et al., ICLR 2018 (GAT); Xu et al.,
    ICLR 2019 (GIN); Fey and Lenssen, PyTorch Geometric, 2019.
    """
    settings = settings or GnnSettings()
    require_gnn()
    device = _device(settings.device)
    from xnq_dist.evaluation.methods.gnn_models import build

    started = time.perf_counter()
    with _threads(settings.threads):
        graph = indptr, indices, features
        network = build(kind, layers, width, *graph, n_classes, seed, device)
        name = f"{kind} with {layers} layers of width {width}"
        logits, epochs, best_epoch, best_loss = _train(
            network, name, labels, stop_labels, seed, settings, device
        )
    seconds = time.perf_counter() - started
    log.info(
        "%s: %d epochs in %.1f s on %s, log-loss %.4f in epoch %d",
        *(name, epochs, seconds, device, best_loss, best_epoch),
    )
    return GnnResult(logits, epochs, seconds, best_loss, device, best_epoch)


def _train(
    network: GraphNetwork,
    name: str,
    labels: NDArray[np.int32],
    stop_labels: NDArray[np.int32],
    seed: int,
    settings: GnnSettings,
    device: str,
) -> tuple[NDArray[np.float64], int, int, float]:
    """Train with early stopping; return logits, epochs, best epoch, its log-loss."""
    import torch
    from torch.nn.functional import cross_entropy

    def put(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(array)).to(device)

    def known(codes: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        rows = np.flatnonzero(codes >= 0)
        return put(rows), put(codes[rows].astype(np.int64))

    rows, targets = known(labels)
    stop_rows, stop_targets = known(stop_labels)
    generator = torch.Generator(device).manual_seed(seed)
    optimizer = torch.optim.Adam(
        network.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
    )
    best, best_epoch, best_loss = None, 0, math.inf
    epoch = 0
    while epoch < settings.max_epochs and epoch - best_epoch < settings.patience:
        epoch += 1
        optimizer.zero_grad()
        logits = network(settings.dropout, generator)
        loss = cross_entropy(logits[rows], targets)
        loss.backward()
        optimizer.step()
        if epoch % settings.check_every and epoch != settings.max_epochs:
            continue
        with torch.no_grad():
            logits = network()
            stop_loss = float(cross_entropy(logits[stop_rows].double(), stop_targets))
        if not math.isfinite(stop_loss) or not math.isfinite(float(loss.detach())):
            raise StageError(
                f"training {name} failed in epoch {epoch}: its loss is not a finite "
                f"number; lower learning_rate={settings.learning_rate} or scale the "
                "features"
            )
        if stop_loss < best_loss:
            best, best_epoch, best_loss = logits, epoch, stop_loss
    best_logits = best.double().cpu().numpy()  # type: ignore[union-attr]
    return best_logits, epoch, best_epoch, best_loss


def _device(requested: str) -> str:
    import torch

    has_cuda = torch.cuda.is_available()
    if requested == "cuda" and not has_cuda:
        raise SettingsError(
            "device=cuda, but PyTorch finds no CUDA device: set device=cpu or install "
            "a PyTorch built for this machine's CUDA"
        )
    return "cuda" if has_cuda and requested != "cpu" else "cpu"


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Set the number of PyTorch threads within the block and restore it afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
