"""The figures of a plan."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from xnq_dist.core.sizes import human

__all__ = ["Figures"]


@dataclass(frozen=True)
class Figures:
    """What a run will take."""

    nodes: int
    edges: int
    partitions: int
    workers: int
    halo_rows: int
    """Rows received by all partitions a superstep; a bound until it is partitioned."""
    halo_is_bound: bool
    engine: str
    """Of the exchange: what crosses, and what is held, hangs on it."""
    bytes_per_superstep: int
    """Bytes that cross between workers in one superstep."""
    bytes_are_bound: bool
    """Whether they are at most that, and not exactly."""
    exchanged_bytes: int
    """The same of all supersteps; the first one starts from zeros, and nothing
    crosses."""
    block_memory: int
    """Bytes of blocks, own and received, that one worker holds at a time."""
    states: str
    """Where they are between supersteps: ``memory``, or ``disk``."""
    state_disk: int
    """Bytes of files of states and input drives; 0: in memory."""
    state_bytes: int
    """Bytes read from and written to them in one superstep, at most."""
    worker_memory: int
    """Peak bytes of one worker."""
    worker_limit: int
    """Bytes one worker may use."""
    client_memory: int
    """Peak bytes of the process that ingests, partitions and detects communities."""
    run_disk: int
    """Bytes of the run directory at its largest, checkpoints included."""
    scratch_disk: int
    """Bytes of temporary files at their largest; a bound until the graph is cut."""
    seconds: float
    """Expected time, right to a factor of a few."""
    stages: dict[str, float]
    """The same by stage."""
    basis: str
    """Where the costs behind the times come from."""
    extrapolated: bool
    """Whether nothing of this size, or on such a device, was ever measured."""
    device_memory: int = 0
    """Peak bytes of one worker's GPU; 0: CPUs do the work."""
    device_limit: int = 0
    """Bytes of a GPU's memory that one worker may use."""
    device_tile: int = 0
    """Largest `reservoir.tile` whose streamed states fit the device; 0: none does."""
    ingest_memory: int = 0
    """Peak bytes of a GPU while edges are read and sorted on it; 0: a CPU does."""
    ingest_least: int = 0
    """Bytes of a GPU's memory below which they are not."""
    ingest_limit: int = 0
    """Bytes of a GPU's memory that they may use."""
    ingest_asked: bool = False
    """Whether a GPU is to do it by `input.engine`, not only where it can."""

    def lines(self) -> list[tuple[str, str]]:
        """Name and value of each figure, for people."""
        bound = "at most " if self.halo_is_bound else ""
        files = ""
        if self.states == "disk":
            files = (
                f": {human(self.state_disk)} of files, at most "
                f"{human(self.state_bytes)} read and written a superstep"
            )
        most = "at most " if self.bytes_are_bound else ""
        per_node = self.halo_rows / max(1, self.nodes)
        device = f"{human(self.device_memory)} of {human(self.device_limit)}"
        gpu = [("memory of a GPU", device)] if self.device_limit else []
        if self.ingest_limit:
            reads = f"{human(self.ingest_memory)} of {human(self.ingest_limit)}"
            if self.ingest_least > self.ingest_limit:
                reads = f"{human(self.ingest_least)} of {human(self.ingest_limit)}"
                reads += " will not do" if self.ingest_asked else ": a CPU reads"
            gpu.insert(0, ("memory of a GPU, stage graph", reads))
        return [
            ("nodes", f"{self.nodes:,}"),
            (
                "directed edges",
                f"{'at most ' if self.halo_is_bound else ''}{self.edges:,}",
            ),
            ("partitions on workers", f"{self.partitions} on {self.workers}"),
            ("halo rows", f"{bound}{self.halo_rows:,} ({per_node:.2f} a node)"),
            (
                f"exchanged a superstep ({self.engine})",
                f"{most}{human(self.bytes_per_superstep)}, in all "
                f"{human(self.exchanged_bytes)}",
            ),
            ("of it held by a worker", most + human(self.block_memory)),
            ("states", self.states + files),
            (
                "memory of a worker",
                f"{human(self.worker_memory)} of {human(self.worker_limit)}",
            ),
            *gpu,
            ("memory of ingest, cut, Leiden", human(self.client_memory)),
            ("disk, run directory", human(self.run_disk)),
            ("disk, temporary", bound + human(self.scratch_disk)),
            (
                "time",
                f"{self.seconds:,.0f} s, "
                + (
                    "extrapolated, never measured"
                    if self.extrapolated
                    else "within a factor of a few"
                ),
            ),
            (
                "of it",
                ", ".join(f"{name} {s:,.0f} s" for name, s in self.stages.items()),
            ),
            ("costs", self.basis),
        ]

    def to_dict(self) -> dict[str, Any]:
        """All figures, JSON-able."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
