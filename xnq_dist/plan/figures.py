"""The figures of a plan, and the one plan of a run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.config import Settings
from xnq_dist.core.sizes import human
from xnq_dist.core.store import PLAN, Folder

__all__ = ["Figures", "Plan"]

log = logging.getLogger(__name__)

COMPARED = (
    "partitions on workers",
    "halo rows",
    "states",
    "memory of a worker",
    "memory of a GPU",
)
"""Lines that are named where stages meet something else."""


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
    threads: int
    """Of a worker."""
    client_memory: int
    """Peak bytes of the process that ingests, partitions and detects communities."""
    run_disk: int
    """Bytes of the run directory at its largest, checkpoints included."""
    scratch_disk: int
    """Bytes of temporary files at their largest; a bound until the graph is cut."""
    seconds: float
    """Expected time, right to a factor of a few."""
    stages: Mapping[str, float]
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
    client_limit: int | None = None
    """Bytes of memory that were free where the plan was made; None: not known."""
    starts_early: bool = False
    """Whether workers start while tables are read; they leave `client_memory` then."""
    memberships: int | None = None
    """Rows of the memberships; None: one a node."""
    detects: bool = False
    """Whether Leiden detects the communities."""
    needs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Bytes that each stage takes, as `core.need.Need` has them."""

    def __post_init__(self) -> None:
        for name in ("stages", "needs"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def of(self, *stages: str) -> Figures:
        """The same for some stages: memory of a worker and of its GPU."""
        most = {
            of: max(self.needs[stage][of] for stage in stages)
            for of in ("worker", "device")
        }
        return replace(self, worker_memory=most["worker"], device_memory=most["device"])

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
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return found | {name: dict(found[name]) for name in ("stages", "needs")}


@dataclass(frozen=True)
class Plan:
    """The plan of a run: made once, at its head, and what the stages met since."""

    planned: Figures
    """From the tables' footers, the settings, and the memory that was free."""
    met: Figures | None = None
    """The same of the partitioned graph, on the workers that there were."""

    def resolved(self, settings: Settings) -> Settings:
        """The settings with the plan's numbers of partitions and of local workers."""
        found: dict[str, Any] = {"partitions": self.planned.partitions}
        if not CLUSTERS.record_of(settings.cluster.kind).running:
            local = {
                "workers": self.planned.workers,
                "threads": self.planned.threads,
                "memory_limit": self.planned.worker_limit,
            }
            found["cluster"] = settings.cluster.model_copy(update=local)
        return settings.model_copy(update=found)

    def meets(self, met: Figures) -> Plan:
        """The plan with what a stage met; a line of the log says what differs."""
        now = dict(met.lines())
        changed = [
            f"{name} {now[name]} instead of {value}"
            for name, value in self.planned.lines()
            if name in COMPARED and now.get(name, value) != value
        ]
        if changed:
            log.info("the run differs from its plan: %s", "; ".join(changed))
        return replace(self, met=met)

    @classmethod
    def read(cls, folder: Folder) -> Plan | None:
        """The plan in a run directory; None where there is none of this version.

        Raises
        ------
        DamagedError
            When the file is not what was written.
        """
        found = folder.read_record(PLAN) or {}
        try:
            met = found["met"] and Figures(**found["met"])
            return cls(Figures(**found["planned"]), met)
        except (KeyError, TypeError):
            return None

    def write(self, folder: Folder) -> None:
        """Put the plan into a run directory."""
        met = self.met and self.met.to_dict()
        folder.write_record(PLAN, {"planned": self.planned.to_dict(), "met": met})
