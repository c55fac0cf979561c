"""Construction of quantifiers by name."""

from __future__ import annotations

from importlib import import_module

from xnq_dist.core.quantifiers import QUANTIFIERS
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.interface import Quantifier

__all__ = ["make_quantifier"]

ON_GPU = "xnq_dist.quantify.gpu.sets"
"""Module for ``backend = gpu`` of the quantifiers whose record has ``gpu``."""


def make_quantifier(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier `name` with its settings.

    Raises
    ------
    ValueError
        When no quantifier has that name.
    """
    on_gpu = QUANTIFIERS.record_of(name).gpu and settings.backend == "gpu"
    module = import_module(ON_GPU) if on_gpu else QUANTIFIERS.module_of(name)
    made: Quantifier = module.make(name, settings)
    return made
