"""XNQ+: reservoirs next to node descriptors, label features and a second stage."""

from __future__ import annotations

from xnq_dist.methods.xnq import embed
from xnq_dist.readout.plus.learning import fit
from xnq_dist.readout.plus.plus_model import write_plus_posteriors as write_posteriors

__all__ = ["embed", "fit", "write_posteriors"]
