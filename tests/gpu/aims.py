"""Goals for GPUs, evaluation of measured rows, and a report section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Row = tuple[str, str, str, float, str]
"""Part, case, figure, value, unit."""

NOT_RUN, FAILED = "not run", "failed"
"""Results of a part instead of further rows, with a sentence."""


class NotRunError(Exception):
    """A part has missing requirements; the text names them."""


APART = "AE apart from the CPU's, in spreads of its seeds"
DIFFERENCE = "largest difference from the CPU"


@dataclass(frozen=True)
class Aim:
    """A bound on one figure, in every case whose name contains its words."""

    text: str
    part: str
    figure: str
    bound: float
    case: str = ""
    at_least: bool = False
    """Whether the figure must be at least the bound instead of at most."""

    def values(self, rows: Sequence[Row]) -> list[float]:
        """The figure in every case that was measured."""
        return [
            value
            for part, case, figure, value, _ in rows
            if part == self.part and figure == self.figure and self.case in case
        ]

    def verdict(self, rows: Sequence[Row]) -> tuple[str, str]:
        """``pass``, ``miss`` or ``not measured``; the worst value and the bound."""
        found = self.values(rows)
        least = "at least" if self.at_least else "at most"
        if not found:
            return "not measured", f"{least} {self.bound:g}"
        worst = min(found) if self.at_least else max(found)
        # NaN counts as a miss.
        met = worst >= self.bound if self.at_least else worst <= self.bound
        if any(value != value for value in found):
            return "miss", f"not a number ({least} {self.bound:g})"
        return "pass" if met else "miss", f"{worst:.3g} ({least} {self.bound:g})"


AIMS = (
    Aim(
        "superstep within 1.5 times its floor, dense float32",
        *("superstep", "times the floor", 1.5, "dense-float32"),
    ),
    Aim(
        "superstep within 1.5 times its floor, every matrix and precision",
        *("superstep", "times the floor", 1.5),
    ),
    Aim(
        "states have the same bits run to run",
        *("superstep", "same bits run to run", 1.0, "", True),
    ),
    Aim("states equal the CPU's at a low scale", "states", DIFFERENCE, 1e-4),
    Aim("SLD of all communities: the CPU's answers", "sld", DIFFERENCE, 1e-9),
    Aim(
        "a job of Genius' size in 5 s, kernels compiled before",
        *("genius", "all", 5.0, "again"),
    ),
    Aim("memory's peak within the plan", "memory", "peak over plan", 1.0),
    Aim("cuDF's edges are Arrow's", "ingest", "same edges", 1.0, "", True),
    Aim("AE on Tolokers is the CPU's", "tolokers", APART, 1.0),
    Aim("AE on the made graph is the CPU's", "made", APART, 1.0),
)


def verdict_lines(rows: Sequence[Row]) -> list[str]:
    """One line per goal, for a terminal."""
    lines = []
    for aim in AIMS:
        said, beside = aim.verdict(rows)
        lines.append(f"{said:12s}  {aim.text}: {beside}")
    return lines


def worst_terms(rows: Sequence[Row]) -> list[tuple[str, float, float]]:
    """Names, seconds and shares of the profiled job's time, in falling order."""
    found = [
        (figure, value)
        for part, _, figure, value, unit in rows
        if part == "profile" and unit == "s" and figure != "all"
    ]
    whole = sum(value for _, value in found) or 1.0
    ordered = sorted(found, key=lambda pair: -pair[1])
    return [(name, value, value / whole) for name, value in ordered]


def markdown(rows: Sequence[Row], environment: Mapping[str, str], command: str) -> str:
    """A section for RESULTS.md: machine, command, aims, time by kernel, all rows."""
    about = ", ".join(f"{name} {value}" for name, value in environment.items())
    text = [f"## Measured: {about}", "", f"`{command}`", ""]
    text += ["| aim | | worst |", "|---|---|---|"]
    for aim in AIMS:
        said, beside = aim.verdict(rows)
        mark = f"**{said}**" if said == "miss" else said
        text.append(f"| {aim.text} | {mark} | {beside} |")
    terms = worst_terms(rows)
    if terms:
        text += ["", f"Worst term of the Genius-sized job: {terms[0][0]}.", ""]
        text += ["| kernel or call | s | share |", "|---|---|---|"]
        text += [f"| {name} | {s:.4g} | {share:.0%} |" for name, s, share in terms]
    text += ["", "| part | case | figure | value | |", "|---|---|---|---|---|"]
    text += [
        f"| {part} | {case} | {figure} | {value:.4g} | {unit} |"
        for part, case, figure, value, unit in rows
        if part != "profile"
    ]
    return "\n".join(text) + "\n"
