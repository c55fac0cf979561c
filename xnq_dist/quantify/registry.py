"""From a quantifier's name to the quantifier."""

from __future__ import annotations

from importlib import import_module

from xnq_dist.core.config import Settings
from xnq_dist.core.quantifiers import QUANTIFIERS
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
    on_gpu = QUANTIFIERS.record_of(name).gpu and settings.backend == "gpu"
    module = import_module(ON_GPU) if on_gpu else QUANTIFIERS.module_of(name)
    made: Quantifier = module.make(name, settings)
    return made
