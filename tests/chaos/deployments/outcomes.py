"""Outcomes of the cases, as records and as a table of kinds and stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos.deployments.cases import STAGES, Case

__all__ = ["BAD", "VERDICTS", "Attempt", "Outcome", "judge", "table"]

VERDICTS = ("right", "recovered", "unclear", "stuck", "silent", "hung", "not run")
"""The right answer, by the same flow run; one clear error, then the right answer;
another error, then the right answer; no later run completes; other values in a run
that completed; no end in time; nothing was left to hurt."""
BAD = ("unclear", "stuck", "silent", "hung")
UNCLEAR = ("Traceback", "internal error", "encountered an exception", "non-zero status")
"""Parts of messages that do not tell a reader what happened."""


@dataclass
class Attempt:
    """One flow run of a case."""

    state: str
    """Its last state; ``HUNG``: it did not end in time."""
    message: str
    seconds: float
    starts: int
    """How often it was started: more than once by the automations."""
    differing: list[str] = field(default_factory=list)
    """Tables with wrong values, if it was completed."""

    @property
    def clear(self) -> bool:
        """Whether its message is a sentence for people."""
        words = self.message
        return bool(words) and not any(part in words for part in UNCLEAR)


@dataclass
class Outcome:
    """The outcome of a case."""

    case: Case
    verdict: str
    runs: list[Attempt] = field(default_factory=list)
    """The run with the fault, then runs without faults."""
    landed: str = ""
    """Stage in which the fault was injected, or the damaged file."""
    leaked: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """As JSON-able values."""
        values = asdict(self)
        return {**self.case.record(), **values, "case": None}


def judge(runs: Sequence[Attempt]) -> str:
    """Verdict of the flow runs of one case, the first of them disturbed.

    Examples
    --------
    >>> judge([Attempt("COMPLETED", "", 9.0, 2)])
    'right'
    >>> judge([Attempt("FAILED", "the disk is full", 9.0, 1)])
    'stuck'
    """
    first, last = runs[0], runs[-1]
    if any(run.state == "HUNG" for run in runs):
        return "hung"
    if any(run.differing for run in runs):
        return "silent"
    if last.state != "COMPLETED":
        return "stuck"
    if first.state == "COMPLETED":
        return "right"
    return "recovered" if first.clear else "unclear"


def table(records: Sequence[dict[str, Any]]) -> str:
    """Cases by kind and stage, and their outcomes, in Markdown."""
    stages = (*STAGES, "between")
    head = ("fault", "cases", *stages, *VERDICTS, "leaked", "longest, s")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for kind in (*sorted({found["kind"] for found in records}), "all"):
        mine = [found for found in records if kind in (found["kind"], "all")]
        where = [
            found["stage"]
            if found["stage"] == "between" or found["verdict"] == "not run"
            else found["landed"]
            for found in mine
        ]
        cells = [len(mine), *(where.count(stage) for stage in stages)]
        cells += [sum(f["verdict"] == verdict for f in mine) for verdict in VERDICTS]
        cells += [sum(bool(found["leaked"]) for found in mine)]
        taken = [found["runs"][0]["seconds"] for found in mine if found["runs"]]
        cells += [round(max(taken, default=0))]
        lines.append(f"| {kind} | {' | '.join(str(cell or '') for cell in cells)} |")
    return "\n".join(lines)
