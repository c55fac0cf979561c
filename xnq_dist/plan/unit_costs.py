"""Costs of work in seconds per edge, value, byte or task.

``costs.json`` next to this module holds the costs of one CPU core, measured by
``xnq-dist bench costs``, with the machine and the date. A machine's own costs, measured
by ``xnq-dist doctor --calibrate``, take their place. Costs of a GPU are extrapolated
from a data sheet, and marked so.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from xnq_dist.core.errors import InputError
from xnq_dist.core.limits import processor_name

__all__ = ["RECORDED", "VARIABLE", "Costs", "Device", "load_costs", "own_costs"]

Device = Literal["cpu", "gpu"]

RECORDED = Path(__file__).with_name("costs.json")
VARIABLE = "XNQ_COSTS"
"""Environment variable with the path of the file of this machine's own costs."""

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
GPU_HOST = 2.5e10
"""Bytes per second between host and GPU: four tenths of the 6.4e10 of PCIe 5 x16, since
the host's memory is not pinned."""
ETHERNET = 1.25e9
"""Bytes per second between hosts that are assumed unless `cluster.bandwidth` is set: 10
Gigabit Ethernet."""
VALUE_BYTES = 4.0
"""Bytes of a state's value."""
PASSES = 8.0
"""Bytes moved by elementwise operations of a superstep, over the bytes of states."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one core (or one GPU) for each unit of work."""

    fixed: float
    """The constant part of a run in one process: imports, scheduler, the report."""
    start: float
    """Worker processes started, in addition."""
    node: float
    """Read, rank and write a node of a few features."""
    edge: float
    """Read, map, sort and write a directed edge, including rho(A)."""
    cut: float
    """One directed edge's ends assigned to partitions."""
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
    """One byte from worker to worker, encrypted."""
    host: float
    """One byte of states between a GPU and its host; 0 on a CPU."""
    disk: float
    """One byte written to a new file, including checksums."""
    load: float
    """One byte of a partition's arrays read."""
    table: float
    """One byte of embeddings encoded for their table, without `disk`."""
    read: float
    """One byte of embeddings read from their table."""
    task: float
    """One task scheduled."""
    point: float
    """One evaluation of a fit's objective, without the cost of rows."""
    row: float
    """One value of a labelled row in one evaluation, for two classes and five fits."""
    loss: float
    """The log-loss of a labelled row in it, and its derivative."""
    class_row: float
    """As `row`, for each of several classes."""
    class_loss: float
    """As `loss`, for each of several classes."""
    square: float
    """One pair of a labelled row's values in the covariance matrix."""
    cube: float
    """One cubed column of a matrix that is factorised and inverted."""
    score: float
    """One value of an embedding in one logit."""
    share: float
    """One logit turned into a probability."""
    posterior: float
    """One node's posterior calibrated and written, including reading its columns."""
    tree: float
    """One boosted tree fitted, without the costs of columns and rows."""
    column: float
    """One column that one split looks at, without the cost of rows."""
    bin: float
    """One value of a row that a split looks at."""
    bins: float
    """The bins of one column, without the cost of rows."""
    place: float
    """One value of a row placed in its bin."""
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

    def linked(self, bandwidth: float, of: str) -> Costs:
        """The costs with at most `bandwidth` bytes a second between workers.

        `of` is its source, for `basis`.
        """
        wire = max(self.wire, 1.0 / bandwidth)
        return replace(self, wire=wire, basis=f"{self.basis}; {of}")

    def on_gpu(self) -> Costs:
        """The costs on a GPU, extrapolated from a data sheet."""
        moved = "gather", "row", "loss", "class_row", "class_loss"
        costs: Any = dict.fromkeys(moved, VALUE_BYTES / GPU_MEMORY)
        return replace(
            self,
            **costs,
            visit=0.0,
            flop=1.0 / GPU_FLOPS,
            nonzero=1.0 / GPU_FLOPS,
            value=PASSES * VALUE_BYTES / GPU_MEMORY,
            copy=1.0 / GPU_MEMORY,
            wire=1.0 / GPU_WIRE,
            host=1.0 / GPU_HOST,
            square=2.0 / GPU_FLOPS,
            basis=f"GPU from its data sheet, never measured; the rest {self.basis}",
            edges_measured=0.0,
        )


def own_costs() -> Path:
    """File of this machine's own costs: ``$XNQ_COSTS``, else one for its processor."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    slug = re.sub(r"[^a-z0-9]+", "-", processor_name().lower()).strip("-")
    return Path(home) / "xnq-dist" / f"costs-{slug}.json"


def load_costs(path: str | Path | None = None) -> Costs:
    """Costs from a file, as ``xnq-dist bench costs`` records them.

    Parameters
    ----------
    path
        None: this machine's own costs if they were measured, else the package's.

    Raises
    ------
    InputError
        When the file does not exist or has another content.
    """
    if path is None:
        path = own_costs()
        if not (path.exists() or os.environ.get(VARIABLE)):
            path = RECORDED
    advice = "write it again with xnq-dist doctor --calibrate"
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"the costs {path} cannot be read ({error}): {advice}"
        ) from error
    names = [field.name for field in fields(Costs)]
    values = record.get("costs") if isinstance(record, dict) else None
    values = values if isinstance(values, dict) else {}
    text = isinstance(values.get("basis"), str)
    numbers = [values.get(name) for name in names if name != "basis"]
    if not text or not all(isinstance(n, float | int) and n >= 0 for n in numbers):
        raise InputError(f"{path} lacks costs that this version needs: {advice}")
    return Costs(**{name: values[name] for name in names})
