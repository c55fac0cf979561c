"""Trained message passing in the reservoir's place: GCN, GAT and GIN.

The paper's ablation of the node embedder: two to four layers of width 128 or 256, then
a linear readout, trained end to end on the whole graph with the training labels' mean
log-loss. The epoch whose log-loss on other labels is lowest answers. PyTorch and
PyTorch Geometric are the extra ``gnn``, imported on use.

The paper prints the mean over the closed neighbourhood and a sigmoid for GCN, and
leaves training open. Here the layers are PyTorch Geometric's, with ReLU: GCN in its
usual symmetric normalisation, GAT with one head, GIN with a perceptron of two layers.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import InputError, SettingsError, StageError

if TYPE_CHECKING:
    from torch import Tensor

    from xnq_dist.evaluation.methods.gnn_models import GraphNetwork

__all__ = ["KINDS", "GnnResult", "GnnSettings", "gnn_logits", "grid", "require_gnn"]

log = logging.getLogger(__name__)

KINDS = ("gcn", "gat", "gin")
"""Kinds of message passing."""


@dataclass(frozen=True)
class GnnSettings:
    """How a network is trained; not what a search varies."""

    learning_rate: float = 0.01
    """Of Adam."""
    weight_decay: float = 1e-4
    """L2 penalty in Adam's gradient."""
    dropout: float = 0.5
    """Share of hidden values set to 0 in training."""
    max_epochs: int = 200
    patience: int = 30
    """Epochs without a lower log-loss on the stop labels after which training ends."""
    check_every: int = 5
    """Epochs from one look at the stop labels to the next; a look costs a third of an
    epoch."""
    threads: int = 1
    """CPU threads; a repeat has the same bits when they are the same."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """``auto`` takes a CUDA device when there is one."""

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[bool, str]] = {
            "learning_rate": (self.learning_rate > 0, "above 0"),
            "weight_decay": (self.weight_decay >= 0, "at least 0"),
            "dropout": (0 <= self.dropout < 1, "at least 0 and below 1"),
            "max_epochs": (self.max_epochs >= 1, "at least 1"),
            "patience": (self.patience >= 1, "at least 1"),
            "check_every": (
                1 <= self.check_every <= self.max_epochs,
                "at least 1 and at most max_epochs",
            ),
            "threads": (self.threads >= 1, "at least 1"),
            "device": (self.device in ("auto", "cpu", "cuda"), "auto, cpu or cuda"),
        }
        wrong = [
            f"{name}={getattr(self, name)!r} must be {bound}"
            for name, (held, bound) in bounds.items()
            if not held
        ]
        if wrong:
            raise SettingsError(f"settings of the network: {'; '.join(wrong)}")


@dataclass(frozen=True, eq=False)
class GnnResult:
    """A trained network's answer for all nodes."""

    logits: NDArray[np.float64]
    """Of the best epoch, uncalibrated, shape (N, C)."""
    epochs: int
    """Epochs that were trained."""
    seconds: float
    """Wall time, from the arrays to the logits."""
    best_loss: float
    """Mean log-loss of the stop labels in the best epoch."""
    device: str
    """``cpu`` or ``cuda``."""
    best_epoch: int
    """Epoch that answers, from 1."""


def grid() -> list[dict[str, int]]:
    """The paper's six configurations of each kind, in the order of their cost."""
    return [
        {"layers": layers, "width": width}
        for width in (128, 256)
        for layers in (2, 3, 4)
    ]


def require_gnn() -> None:
    """Refuse when PyTorch or PyTorch Geometric is missing, without importing them.

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


def gnn_logits(
    kind: Literal["gcn", "gat", "gin"],
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
    """Train a network on the whole graph and give every node's logits.

    On a CPU the same arguments give the same bits, and PyTorch's process-wide random
    state is left as it was; several threads of a process may train at the same time.
    On CUDA the parameters start the same, sums may differ in their last bits.

    Parameters
    ----------
    kind
        ``gcn``, ``gat`` or ``gin``.
    layers, width
        Number of message-passing layers and the columns of each.
    indptr, indices
        In-neighbours of each node as CSR: row v holds the sources u of edges u -> v,
        shapes (N + 1,) and (M,).
    features
        Shape (N, F).
    labels
        Class code of the nodes to train on, -1 elsewhere, shape (N,).
    stop_labels
        Class code of the nodes whose log-loss ends the training, -1 elsewhere, (N,).
    n_classes
        Number of classes, C.
    seed
        Of the initial parameters and of dropout.
    settings
        How to train, the defaults when None.

    Raises
    ------
    SettingsError
        Without the extra ``gnn``, for an unknown kind, for sizes below 1 and for a
        CUDA device that is not there.
    InputError
        When the arrays do not fit together, features are not finite, a class has no
        training label, no stop label is given, or a node has both.
    StageError
        When the loss stops being a number.

    References
    ----------
    Kipf and Welling, ICLR 2017 (GCN); Velickovic et al., ICLR 2018 (GAT); Xu et al.,
    ICLR 2019 (GIN); Fey and Lenssen, PyTorch Geometric, 2019.
    """
    settings = settings or GnnSettings()
    if kind not in KINDS:
        raise SettingsError(
            f"{kind!r} is no kind of message passing: choose one of {', '.join(KINDS)}"
        )
    if min(layers, width) < 1:
        raise SettingsError(
            f"{kind}: layers={layers} and width={width} must both be at least 1"
        )
    _check_arrays(indptr, indices, features)
    _check_labels(labels, stop_labels, len(features), n_classes)
    require_gnn()
    device = _device(settings.device)
    from xnq_dist.evaluation.methods.gnn_models import build

    started = time.perf_counter()
    with _threads(settings.threads):
        network = build(
            kind,
            layers,
            width,
            indptr,
            indices,
            features,
            n_classes,
            seed,
            device,
        )
        name = f"{kind} with {layers} layers of width {width}"
        logits, epochs, best_epoch, best_loss = _train(
            network, name, labels, stop_labels, seed, settings, device
        )
    seconds = time.perf_counter() - started
    log.info(
        "%s: %d epochs in %.1f s on %s, log-loss %.4f in epoch %d",
        name,
        epochs,
        seconds,
        device,
        best_loss,
        best_epoch,
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
    """Train with early stopping: logits, epochs, best epoch, its stop log-loss."""
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
                f"training {name} failed in epoch {epoch}: its loss is no longer a "
                f"number; lower learning_rate={settings.learning_rate} or scale the "
                "features"
            )
        if stop_loss < best_loss:
            best, best_epoch, best_loss = logits, epoch, stop_loss
    answer = best.double().cpu().numpy()  # type: ignore[union-attr]
    return answer, epoch, best_epoch, best_loss


def _device(wanted: str) -> str:
    import torch

    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise SettingsError(
            "device=cuda, but PyTorch finds no CUDA device: set device=cpu or install "
            "a PyTorch built for this machine's CUDA"
        )
    return "cuda" if there and wanted != "cpu" else "cpu"


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads of PyTorch for a while; its setting is that of the caller."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_arrays(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    features: NDArray[np.float32],
) -> None:
    if features.ndim != 2 or 0 in features.shape:
        raise InputError(
            f"a network needs features of shape (N, F), not {features.shape}"
        )
    n = len(features)
    if indptr.shape != (n + 1,) or indptr[-1] != len(indices):
        raise InputError(
            f"the adjacency has {len(indptr) - 1} rows and {len(indices)} entries, but "
            f"{n} rows of features and {int(indptr[-1])} entries are named"
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < n:
        raise InputError(
            f"the adjacency names node {int(indices.max())}, but there are {n} nodes"
        )
    finite = np.isfinite(features).all(axis=1)
    if not finite.all():
        raise InputError(
            f"features of {int((~finite).sum())} nodes are not finite, the first is "
            f"node {int(finite.argmin())}: fill them before training a network"
        )


def _check_labels(
    labels: NDArray[np.int32],
    stop_labels: NDArray[np.int32],
    n: int,
    n_classes: int,
) -> None:
    if n_classes < 2:
        raise InputError(f"a network needs two classes or more, not {n_classes}")
    for name, codes in (("labels", labels), ("stop_labels", stop_labels)):
        if codes.shape != (n,):
            raise InputError(
                f"{name} have the shape {codes.shape}, but there are {n} nodes"
            )
        if codes.max(initial=-1) >= n_classes:
            raise InputError(
                f"{name} hold the class code {int(codes.max())}, but there are "
                f"{n_classes} classes"
            )
    counts = np.bincount(labels[labels >= 0], minlength=n_classes)
    if not counts.all():
        raise InputError(
            f"class {int(counts.argmin())} has no training label: a network cannot "
            "learn it; use folds in which every class is present"
        )
    if not (stop_labels >= 0).any():
        raise InputError(
            "no validation label is given: a network needs them to stop its training"
        )
    both = np.flatnonzero((labels >= 0) & (stop_labels >= 0))
    if len(both):
        raise InputError(
            f"{len(both)} nodes are both training and validation nodes, the first is "
            f"node {int(both[0])}: each node may have one role"
        )
