"""Costs of work in seconds per edge, value, byte or task.

``costs.json`` next to this module holds the costs of one CPU core, measured and fitted
by ``xnq-dist bench costs``, with the machine and the date. Costs of a GPU are
extrapolated from a data sheet, and marked so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from xnq_dist.core.errors import InputError

__all__ = ["RECORDED", "Costs", "Device", "load_costs"]

Device = Literal["cpu", "gpu"]

RECORDED = Path(__file__).with_name("costs.json")

GPU_MEMORY = 1.6e12
"""Bytes per second of reading random rows of some hundred bytes: half of the memory
bandwidth on an H100's data sheet (3.35e12)."""
GPU_BYTES = 72 * 2**30
"""Device memory that a worker may use: nine tenths of the data sheet's 80 GiB."""
GPU_FLOPS = 4e13
"""Products in float32 without tensor cores: six tenths of the data sheet's 6.7e13."""
GPU_WIRE = 5e10
"""Bytes per second between GPUs of one machine: an eighth of NVLink's 4.5e11, because
rows are packed and unpacked."""
VALUE_BYTES = 4.0
"""Bytes of a state's value."""
PASSES = 8.0
"""Bytes moved by elementwise operations of a superstep, over the bytes of states."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one core (or one GPU) for each unit of work."""

    fixed: float
    """The constant part of a run: processes, imports, the report."""
    node: float
    """Read, rank and write a node of a few features."""
    edge: float
    """Read, map, sort, partition and write a directed edge, including rho(A)."""
    visit: float
    """Access one neighbour's state at a random address, up to its first value."""
    gather: float
    """Add one value of a neighbour's state."""
    flop: float
    """One floating point operation of a product of blocks."""
    nonzero: float
    """One floating point operation of a product with a sparse W."""
    value: float
    """Elementwise operations for one value of a state, including copies of blocks."""
    copy: float
    """One byte copied to newly allocated memory."""
    wire: float
    """One byte from worker to worker."""
    disk: float
    """One byte of arrays written, including checksums."""
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
    """One pair of a labelled row's values in the covariance matrix."""
    score: float
    """One value of an embedding in the logits."""
    posterior: float
    """One node's posterior calibrated and written, including reading its columns."""
    tree: float
    """One boosted tree fitted, without the cost of rows."""
    bin: float
    """One value of a row while a tree is fitted."""
    leaf: float
    """One row sent through one tree."""
    feature: float
    """One label feature of a node in one variant."""
    known: float
    """One node's posterior and label read before communities are estimated."""
    name: float
    """One node's id read and sorted."""
    member: float
    """One membership quantified by SLD."""
    judged: float
    """One membership quantified by ``auto``, without its edges."""
    leiden: float
    """One directed edge in community detection."""
    basis: str
    """Source of the costs, as text."""
    edges_measured: float
    """Directed edges of the largest graph that the costs were checked on."""

    def on(self, device: Device) -> Costs:
        """The costs on a device; those of a GPU are extrapolated from a data sheet."""
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
        When the file does not exist or has another content.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"the costs {path} cannot be read ({error}): name a costs.json that "
            "`xnq-dist bench costs --out` wrote"
        ) from error
    names = {field.name for field in fields(Costs)}
    values = record.get("costs") if isinstance(record, dict) else None
    if not isinstance(values, dict) or not names <= set(values):
        raise InputError(
            f"{path} is not a record of costs: name a costs.json that `xnq-dist bench "
            "costs --out` wrote"
        )
    return Costs(**{name: values[name] for name in names})
