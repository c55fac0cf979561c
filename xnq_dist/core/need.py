"""The counts that a run is planned from, and the bytes that a stage needs.

Each stage's subpackage has a function ``needs(size, settings)``; `xnq_dist.plan` adds
up the results. Sizes in bytes have a form as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import ByteSize, Field, TypeAdapter

if TYPE_CHECKING:
    from xnq_dist.core.arrays import Ints

__all__ = [
    "GraphSize",
    "Need",
    "PartitionCounts",
    "RunSize",
    "Workers",
    "check_size",
    "human",
    "parse_bytes",
]

_BYTES = TypeAdapter(Annotated[ByteSize, Field(gt=0)])


@dataclass(frozen=True)
class PartitionCounts:
    """Counts of the partitions from the stage ``graph``; shapes (P,), unless noted."""

    owned: Sequence[int]
    edges: Sequence[int]
    boundary: Sequence[int]
    """Rows of each partition that any other partition reads."""
    halo_sizes: Ints
    """Halo rows of each (owner, reader), shape (P, P)."""


@dataclass(frozen=True)
class GraphSize:
    """Counts of a graph."""

    nodes: int
    edges: int
    """Directed edges; an upper bound until reversed edges are counted."""
    features: int
    classes: int = 2
    labelled: int | None = None
    node_bytes: int | None = None
    """Bytes of the node table on disk, compressed; None: assumed uncompressed."""
    partition_counts: PartitionCounts | None = None
    """The partitions' counts, once the graph is partitioned."""
    diameter: int | None = None
    """Effective diameter; None: unknown or not needed, so that ``auto`` may take the
    maximum number of supersteps."""
    weighted: bool = False
    """Whether edges have weights."""
    memberships: int | None = None
    """Rows of the memberships; None: assumed one per node."""


@dataclass(frozen=True)
class Workers:
    """The workers of a run."""

    count: int
    threads: int
    """Threads of each worker."""
    memory: int
    """Bytes that each worker may use."""
    device: int = 0
    """Bytes of GPU memory that each worker may use; 0: the work runs on CPUs."""


@dataclass(frozen=True, kw_only=True)
class RunSize(GraphSize):
    """Counts of a graph, its partitions and its workers."""

    partitions: int
    workers: Workers
    detects: bool = False
    """Whether Leiden detects communities."""

    @property
    def per_worker(self) -> int:
        """Maximum partitions of a worker."""
        return -(-self.partitions // self.workers.count)

    @property
    def lanes(self) -> int:
        """Tasks that run in parallel in a worker, one for each partition."""
        return min(self.per_worker, self.workers.threads)

    @property
    def known(self) -> int:
        """Labelled nodes; all nodes if they were not counted."""
        return self.nodes if self.labelled is None else self.labelled

    @property
    def members(self) -> int:
        """Rows of the memberships; one per node if they were not counted."""
        return self.nodes if self.memberships is None else self.memberships


@dataclass(frozen=True)
class Need:
    """Peak bytes of a stage."""

    worker: int = 0
    """Bytes of one worker's memory."""
    client: int = 0
    """Bytes of the process that reads tables, partitions and detects communities."""
    device: int = 0
    """Bytes of one worker's GPU."""
    disk: int = 0
    """Bytes of the run directory, without the files of earlier stages."""
    kept: int = 0
    """Bytes of the run directory that stay once the stage is complete."""
    scratch: int = 0
    """Bytes of temporary files."""


def parse_bytes(text: str | int) -> int:
    """Bytes of a text such as ``"2 GiB"``, ``"500MB"`` or a number.

    Raises
    ------
    ValueError
        When the text is not a positive number with a known unit.

    Examples
    --------
    >>> parse_bytes("1.5 GiB")
    1610612736
    """
    try:
        return int(_BYTES.validate_python(str(text)))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a size such as '2 GiB'") from error


def check_size(value: str | int) -> str | int:
    """Return the value if it is a size; else raise a `ValueError`."""
    parse_bytes(value)
    return value


def human(count: float) -> str:
    """A number of bytes as readable text.

    Examples
    --------
    >>> human(1536)
    '1.5 KiB'
    """
    return ByteSize(count).human_readable(separator=" ")
