"""Selection by validation: the draw and calibration of least AE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Choice", "ValidationErrors", "choose"]


@dataclass(frozen=True)
class ValidationErrors:
    """Errors of one draw, calibration and quantifier on the validation samples."""

    draw: int
    split: int
    """Place in ``Task.splits``."""
    quantifier: str
    calibration: str
    errors: dict[str, float]


@dataclass(frozen=True)
class Choice:
    """What validation chose for a quantifier in a split."""

    draw: int
    split: int
    quantifier: str
    calibration: str
    compared: int
    """Draws times calibrations that it was chosen from."""


def choose(figures: Iterable[ValidationErrors]) -> list[Choice]:
    """The least validation AE of each split and quantifier.

    Of equal ones the earlier draw, then the earlier calibration in the order given.
    """
    groups: dict[tuple[int, str], list[ValidationErrors]] = {}
    for figure in figures:
        groups.setdefault((figure.split, figure.quantifier), []).append(figure)
    found = []
    for (split, quantifier), group in groups.items():
        best = min(group, key=lambda figure: figure.errors["ae"])
        found.append(Choice(best.draw, split, quantifier, best.calibration, len(group)))
    return found
