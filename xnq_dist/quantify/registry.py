"""From a quantifier's name to the quantifier."""

from __future__ import annotations

from importlib import import_module

from xnq_dist.core.config import Settings
from xnq_dist.core.quantifiers import record_of
from xnq_dist.quantify.interface import Quantifier

__all__ = ["make_quantifier"]

ON_GPU = "xnq_dist.quantify.gpu.sets"
"""What makes those whose record says so where ``backend = gpu``."""


def make_quantifier(name: str, settings: Settings) -> Quantifier:
    """A quantifier by its name, as the settings describe it.

    Raises
    ------
    ValueError
        When there is none of that name.
    """
    record = record_of(name)
    on_gpu = record.gpu and settings.backend == "gpu"
    made: Quantifier = import_module(ON_GPU if on_gpu else record.module).make(
        name, settings
    )
    return made
