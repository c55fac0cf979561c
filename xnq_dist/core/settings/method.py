"""Sections of the settings on the method: reservoir, readout, quantifiers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from xnq_dist.core.settings.section import CountOrAuto, Section, Size
from xnq_dist.core.sizes import parse_bytes

__all__ = [
    "CheckpointSettings",
    "EmbeddingSettings",
    "ExchangeSettings",
    "ReadoutSettings",
    "ReservoirSettings",
]

MAX_ROWS = 200_000
"""Maximum number of labelled rows that models are fitted to: with so few columns, more
rows barely improve them."""
VALUE_BYTES = 8
"""Bytes per value of a labelled row: float32 as gathered, and again in sorted rows."""

Scale = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]

Scales = Annotated[tuple[Scale, ...], Field(min_length=1, max_length=64)]


class ReservoirSettings(Section):
    """The untrained graph reservoir (METHODS: node embedder)."""

    dim: int = Field(256, ge=1, le=16384)
    """embedding dimension (reservoir units), d'; method=xnq gains from 512 or more"""
    supersteps: Annotated[int, Field(ge=1, le=10000)] | Literal["auto"] = "auto"
    """number of message-passing iterations (supersteps), L; auto: two more than the
    distance within which 90 % of the node pairs lie, 30 at most"""
    recurrent_scale: Scale | Scales | Literal["select"] = "select"
    """spectral radius of the recurrent matrix times that of the adjacency matrix (above
    1: not contractive); a list: one reservoir for each value, which share the units;
    select: by held-out log-loss (xnq), or 1, 3, 8 and 20 together (xnq+)"""
    input_scale: Scale | Literal["select"] = "select"
    """input weights are uniform in plus or minus this value; select: by held-out
    log-loss (xnq), or 0.3 (xnq+)"""
    matrix: Literal["dense", "sparse"] = "sparse"
    """form of the recurrent matrix W"""


class ExchangeSettings(Section):
    """Halo exchange between supersteps."""

    dtype: Literal["float32", "float16"] = "float32"
    """precision of exchanged and stored states; float16: on CPUs, in half the memory"""

    @property
    def on_cpus(self) -> bool:
        """Whether all work is on CPUs with ``backend = auto``."""
        return self.dtype == "float16"


class CheckpointSettings(Section):
    """Checkpoints of the reservoir's states."""

    every: CountOrAuto = "auto"
    """supersteps between two checkpoints"""
    grace: float = Field(15.0, ge=0, allow_inf_nan=False)
    """seconds that a run which a signal ends may take to complete its supersteps and
    write a checkpoint; 0: it writes none"""


class EmbeddingSettings(Section):
    """The embedding table."""

    write: bool = True
    """keep embeddings/ once the posteriors are written"""


class ReadoutSettings(Section):
    """Logistic readout and calibration."""

    C: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["select"] = "select"
    """inverse L2 strength; select: chosen by out-of-fold log-loss"""
    calibration: Literal["bcts", "platt", "platt_logit", "temperature", "none"] = "bcts"
    """calibration method of the posteriors"""
    folds: int = Field(5, ge=2, le=100)
    """number of cross-fitting folds"""
    memory: Size = "2 GiB"
    """maximum memory for the embeddings of labelled nodes"""

    @property
    def memory_bytes(self) -> int:
        """Maximum bytes of the embeddings of labelled nodes."""
        return parse_bytes(self.memory)

    def max_rows(self, columns: int) -> int:
        """Maximum number of labelled nodes that models are fitted to."""
        return min(self.memory_bytes // (VALUE_BYTES * columns), MAX_ROWS)
