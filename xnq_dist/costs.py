"""What work costs: seconds an edge, a value, a byte, a task; fitted, with their date.

``costs.json`` beside this module holds the costs of one CPU core, measured by
``xnq-dist bench costs``, with the machine and the date. Those of a GPU are not
measured but extrapolated from a data sheet, and say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from xnq_dist.errors import InputError

__all__ = ["RECORDED", "Costs", "Device", "Work", "load_costs", "stage_seconds"]

Device = Literal["cpu", "gpu"]

RECORDED = Path(__file__).with_name("costs.json")

GPU_MEMORY = 1.6e12
"""Bytes a second that random rows of some hundred bytes come at: half of the memory
bandwidth on an H100's data sheet (3.35e12)."""
GPU_BYTES = 72 * 2**30
"""Memory of a device that a worker may use: nine tenths of the data sheet's 80 GiB."""
GPU_FLOPS = 4e13
"""Products in float32 without tensor cores: six tenths of the data sheet's 6.7e13."""
GPU_WIRE = 5e10
"""Bytes a second between GPUs of one machine: an eighth of NVLink's 4.5e11, for rows
are packed and unpacked on the way."""
VALUE_BYTES = 4.0
"""Bytes of a state's value."""
PASSES = 8.0
"""Bytes over bytes of state that all that is elementwise in a superstep moves."""


@dataclass(frozen=True)
class Costs:
    """Seconds that a unit of work takes one core (or one GPU)."""

    fixed: float
    """A run, before its graph counts: processes, imports, the report."""
    node: float
    """Read, rank and write a node of a few features."""
    edge: float
    """Read, map, sort, cut and write a directed edge, rho(A) included."""
    visit: float
    """Come to one neighbour's state, somewhere in memory, before its first value."""
    gather: float
    """Add one value of a neighbour's state."""
    flop: float
    """One floating point operation of a product of blocks."""
    nonzero: float
    """One floating point operation of a product with a sparse W."""
    value: float
    """All that is elementwise for one value of a state."""
    wire: float
    """One byte from worker to worker."""
    disk: float
    """One byte written, checksums and encoding included."""
    task: float
    """One task scheduled."""
    row: float
    """One value of a labelled row in one pass of a fit."""
    member: float
    """One membership quantified, without `auto`'s edges."""
    leiden: float
    """One directed edge while communities are detected."""
    basis: str
    """Where they come from, for people."""
    edges_measured: float
    """Largest graph that they were checked on, directed edges."""

    def on(self, device: Device) -> Costs:
        """The same for a GPU: what runs there is extrapolated from a data sheet."""
        if device == "cpu":
            return self
        return replace(
            self,
            visit=0.0,
            gather=VALUE_BYTES / GPU_MEMORY,
            flop=1.0 / GPU_FLOPS,
            nonzero=1.0 / GPU_FLOPS,
            value=PASSES * VALUE_BYTES / GPU_MEMORY,
            wire=1.0 / GPU_WIRE,
            row=VALUE_BYTES / GPU_MEMORY,
            basis=f"GPU from its data sheet, never measured; the rest {self.basis}",
            edges_measured=0.0,
        )


@dataclass(frozen=True)
class Work:
    """Amounts that a run's time is made of."""

    nodes: int
    edges: int
    """Directed."""
    exchanged: int
    """Bytes that cross between workers, or go through files, in one superstep."""
    partitions: int
    cores: int
    """Cores (or GPUs) that share the supersteps."""
    workers: int
    dim: int
    products: int
    """Values of a state that one new value is made from."""
    sparse: bool
    """Whether they are few of many."""
    detects: bool
    """Whether communities are detected."""
    supersteps: int
    labelled: int
    passes: int
    """Passes over the labelled rows by all fits together."""
    classes: int
    features: int
    """Columns of xnq+'s label and node features, all folds; 0 for xnq."""
    disk: int
    """Bytes that the workers write."""


def stage_seconds(work: Work, costs: Costs) -> dict[str, float]:
    """Seconds of each stage; ingest and cut run in one process, the rest in all.

    Parameters
    ----------
    work
        Amounts.
    costs
        Of a core, or of a GPU.
    """
    values = float(work.nodes) * work.dim
    product = costs.nonzero if work.sparse else costs.flop
    superstep = (
        work.edges * (costs.visit + work.dim * costs.gather)
        + 2.0 * values * work.products * product
        + values * costs.value
    ) / work.cores
    # Each worker receives its own share; what all receive crosses side by side.
    exchange = work.exchanged * costs.wire / work.workers
    overhead = 3.0 * work.partitions * costs.task
    described = work.edges * float(work.features) * costs.gather / work.cores
    fits = work.labelled * float(work.dim) * work.passes * costs.row / work.workers
    scores = values * work.classes * 2.0 * costs.flop / work.cores
    return {
        "fixed": costs.fixed,
        "ingest": work.nodes * costs.node + work.edges * costs.edge,
        "supersteps": work.supersteps * (superstep + exchange + overhead),
        "readout": fits + scores + described,
        "quantify": work.nodes * costs.member / work.workers
        + work.edges * (costs.visit + costs.gather * 8) / work.cores
        + (work.edges * costs.leiden if work.detects else 0.0),
        "write": work.disk * costs.disk / work.workers,
    }


def load_costs(path: str | Path = RECORDED) -> Costs:
    """Costs from a file, as ``xnq-dist bench costs`` records them.

    Raises
    ------
    InputError
        When the file is not there or is no such record.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"the costs {path} cannot be read ({error}): give a costs.json that "
            "`xnq-dist bench costs --out` wrote"
        ) from error
    names = {field.name for field in fields(Costs)}
    there = found.get("costs") if isinstance(found, dict) else None
    if not isinstance(there, dict) or not names <= set(there):
        raise InputError(
            f"{path} is not a record of costs: give a costs.json that `xnq-dist bench "
            "costs --out` wrote"
        )
    return Costs(**{name: there[name] for name in names})


def record_of(costs: Costs, machine: Mapping[str, Any]) -> dict[str, Any]:
    """What `load_costs` reads, with the machine's facts."""
    return {
        "costs": {field.name: getattr(costs, field.name) for field in fields(Costs)},
        "machine": dict(machine),
    }
