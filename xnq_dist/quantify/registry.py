"""Construction of quantifiers by name."""

from __future__ import annotations

from xnq_dist.core.quantifiers import QUANTIFIERS
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.interface import Quantifier

__all__ = ["make_quantifier"]


def make_quantifier(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier `name` with its settings.

    Raises
    ------
    ValueError
        When no quantifier has that name.
    """
    made: Quantifier = QUANTIFIERS.module_of(name).make(name, settings)
    return made
