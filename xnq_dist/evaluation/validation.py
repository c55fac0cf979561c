"""Model selection: the draw and calibration with the lowest validation AE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Choice", "ValidationErrors", "choose"]


@dataclass(frozen=True)
class ValidationErrors:
    """Errors of one draw, calibration and quantifier on the validation samples."""

    draw: int
    split: int
    """Index in ``Task.splits``."""
    quantifier: str
    calibration: str
    errors: dict[str, float]


@dataclass(frozen=True)
class Choice:
    """The draw and calibration that validation chose for a quantifier in a split."""

    draw: int
    split: int
    quantifier: str
    calibration: str
    compared: int
    """Number of candidates: draws times calibrations."""


def choose(figures: Iterable[ValidationErrors]) -> list[Choice]:
    """Choose the lowest validation AE for each split and quantifier.

    Ties go to the earlier draw, then to the earlier calibration in the order given.
    """
    groups: dict[tuple[int, str], list[ValidationErrors]] = {}
    for figure in figures:
        groups.setdefault((figure.split, figure.quantifier), []).append(figure)
    choices = []
    for (split, quantifier), group in groups.items():
        best = min(group, key=lambda figure: figure.errors["ae"])
        choice = Choice(best.draw, split, quantifier, best.calibration, len(group))
        choices.append(choice)
    return choices
