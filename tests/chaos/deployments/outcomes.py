"""Verdicts on the flow runs of a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["BAD", "VERDICTS", "Attempt", "judge"]

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
