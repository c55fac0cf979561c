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

from xnq_dist.core.errors import InputError

__all__ = ["RECORDED", "Costs", "Device", "load_costs", "record_of"]

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
    """All that is elementwise for one value of a state, blocks cut for products."""
    copy: float
    """One byte copied to memory that was never used before."""
    wire: float
    """One byte from worker to worker."""
    disk: float
    """One byte of plain arrays written, checksums included."""
    load: float
    """One byte of a partition's arrays read."""
    table: float
    """One byte of embeddings written to their table."""
    read: float
    """One byte of embeddings read from their table."""
    task: float
    """One task scheduled."""
    row: float
    """One value of a labelled row in one pass of a fit."""
    square: float
    """One pair of a labelled row's values in the covariance of all."""
    score: float
    """One value of an embedding, made part of logits."""
    posterior: float
    """One node's posterior calibrated and written, its columns read."""
    tree: float
    """One boosted tree fitted, were there no rows."""
    bin: float
    """One value of a row while a tree is fitted."""
    leaf: float
    """One row sent through one tree."""
    feature: float
    """One label feature of a node in one variant."""
    known: float
    """One node's posterior and label read before communities are answered."""
    name: float
    """One node's id read and put in order."""
    member: float
    """One membership quantified by SLD."""
    judged: float
    """One membership quantified by ``auto``, without its edges."""
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
            copy=1.0 / GPU_MEMORY,
            wire=1.0 / GPU_WIRE,
            row=VALUE_BYTES / GPU_MEMORY,
            square=2.0 / GPU_FLOPS,
            basis=f"GPU from its data sheet, never measured; the rest {self.basis}",
            edges_measured=0.0,
        )


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
