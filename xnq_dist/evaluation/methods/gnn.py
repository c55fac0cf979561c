"""Trained message passing in the reservoir's place: GCN, GAT and GIN.

The paper's ablation of the node embedder: two to four layers of width 128 or 256, then
a linear readout, trained end to end on the complete graph with the training labels'
mean log-loss. The epoch whose log-loss on the validation labels is lowest answers;
calibration labels are held out, so that each fold has the labels that every other
method has. PyTorch and PyTorch Geometric are the extra ``gnn``, imported on use.

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
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.config import Settings
from xnq_dist.core.errors import SettingsError, StageError
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
    "trained_matters",
    "trained_scores",
]

log = logging.getLogger(__name__)

Kind = Literal["gcn", "gat", "gin"]


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


def trained_matters(settings: Settings) -> dict[str, Any]:
    """Settings that a trained network depends on, beside its configuration."""
    return {"seed": settings.seed, "training": asdict(GnnSettings())}


def trained_scores(
    kind: Kind, work: EvaluationWork, configuration: Configuration, split: int
) -> Scores:
    """Scores of a network trained on one split by one worker."""
    task = work.task()
    graph, manifest = work.graph()
    adjacency = read_adjacency(graph, manifest)
    parts = list(FeatureRows(graph, manifest).parts())
    order = np.argsort(np.concatenate([index for index, _ in parts]))
    found = gnn_logits(
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
    logits = found.logits
    return Scores(held, logits[held], target, logits[target], seconds=found.seconds)


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
    """Train a network on the complete graph and give every node's logits.

    On a CPU the same arguments give the same bits, and PyTorch's process-wide random
    state is left as it was; several threads of a process may train at the same time.
    On CUDA the parameters start the same, sums may differ in their last bits.

    Parameters
    ----------
    layers, width
        Number of message-passing layers and the columns of each.
    indptr, indices
        In-neighbours of each node as CSR: row v holds the sources u of edges u -> v,
        shapes (N + 1,) and (M,).
    features
        Finite, shape (N, F).
    labels
        Class code of the nodes to train on, every class among them, -1 elsewhere, (N,).
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
        Without the extra ``gnn``, and for a CUDA device that is not there.
    StageError
        When the loss stops being a number.

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
