"""Scores of one configuration in one split, stored so that an evaluation can resume.

A unit is one file, named by a fingerprint of its inputs: another evaluation with the
same graph, method, configuration and labels reuses it, so that another quantifier needs
no new fit.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from xnq_dist.core import npy
from xnq_dist.core.store import Folder
from xnq_dist.evaluation.methods.method_interface import Scores

__all__ = ["Unit", "Units"]


@dataclass(frozen=True)
class Unit:
    """Key and origin of a unit."""

    key: str
    draw: int
    split: int
    """Index in ``Task.splits``."""


@dataclass(frozen=True)
class Units:
    """The folder of units."""

    folder: Folder

    def has(self, key: str) -> bool:
        """Whether a unit's scores exist."""
        return self.folder.exists(f"{key}.npy")

    def write(self, key: str, scores: Scores) -> None:
        """Write a unit atomically."""
        buffer = io.BytesIO()
        arrays: dict[str, np.ndarray] = {
            "held": scores.held,
            "held_logits": scores.held_logits.astype(np.float32),
            "target": scores.target,
            "target_logits": scores.target_logits.astype(np.float32),
            "crisp": np.array(scores.crisp),
            "seconds": np.array(scores.seconds),
        }
        npy.write_arrays(buffer, arrays)
        self.folder.write_bytes(f"{key}.npy", buffer.getvalue())

    def read(self, key: str) -> Scores:
        """Read a unit's scores."""
        data = io.BytesIO(self.folder.read_bytes(f"{key}.npy"))
        arrays = npy.read_arrays(data)
        return Scores(
            arrays["held"],
            arrays["held_logits"].astype(np.float64),
            arrays["target"],
            arrays["target_logits"].astype(np.float64),
            bool(arrays["crisp"]),
            float(arrays["seconds"]),
        )
