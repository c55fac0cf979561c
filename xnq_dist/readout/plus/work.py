"""Inputs that all fits of one xnq+ readout share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xnq_dist.core.arrays import Floats, Ints32
from xnq_dist.core.progress import Progress
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Attempt, Manifest, Stage

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Embedded", "PlusWork"]


@dataclass(frozen=True, eq=False)
class Embedded:
    """A graph and its embedding."""

    graph: Stage
    manifest: Manifest
    embeddings: Stage
    embedded: Manifest

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of columns of each block."""
        return tuple(self.embedded.facts["blocks"])


@dataclass(frozen=True, eq=False)
class PlusWork:
    """Labels of an embedded graph, with settings, client and output folder."""

    client: Client
    source: Embedded
    labels: Ints32
    """Class codes by canonical index, -1 for hidden labels, shape (N,)."""
    n_classes: int
    settings: Settings
    attempt: Attempt
    """Where files are written."""
    progress: Progress
    weights: Floats | None = None
    """Weights of the labels by canonical index, shape (N,); None: all equal."""

    @property
    def where(self) -> Stage:
        """The stage that the files are read from."""
        return Stage(self.attempt.folder, "readout")
