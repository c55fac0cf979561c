"""Outcomes of cases, as records and as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.cases import Case

__all__ = ["Attempt", "Outcome", "bad", "judge", "note", "recorded", "table"]

VERDICTS = (
    "ended",
    "refused",
    "recovered",
    "unclear",
    "stuck",
    "silent",
    "hung",
    "not run",
)
"""Right answer at once; one clear error with the status promised, then the right
answer; killed, then the right answer; another error, then the right answer;
no later run completes; other values with status 0; no end in time."""
BAD = ("stuck", "silent", "hung")
"""Columns that must be empty, as ``leaked`` must."""


@dataclass
class Attempt:
    """One run of a case."""

    status: int | None
    """Exit status; None: the run did not end in time."""
    seconds: float
    sentences: list[str]
    """Its last message."""
    traceback: bool
    """Whether its log has a traceback."""
    differing: list[str] = field(default_factory=list)
    """Tables with wrong values, if its status is 0."""


@dataclass
class Outcome:
    """The outcome of a case."""

    case: Case
    verdict: str
    runs: list[Attempt] = field(default_factory=list)
    """The run with the fault, then runs without faults."""
    landed: str = ""
    """Actual place of the fault."""
    leaked: list[str] = field(default_factory=list)
    why: str = ""

    def record(self) -> dict[str, Any]:
        """As JSON-able values."""
        values = asdict(self)
        return {"name": self.case.name, **values.pop("case"), **values}


def judge(runs: Sequence[Attempt], statuses: Sequence[int], killed: bool) -> str:
    """Verdict of the runs of one case.

    Parameters
    ----------
    runs
        The disturbed run and the ordinary ones that followed, the last one final.
    statuses
        Exit status that an error of the first may have.
    killed
        Whether the first was killed, and could say nothing.

    Examples
    --------
    >>> judge([Attempt(0, 1.0, [], False)], (), False)
    'ended'
    >>> judge([Attempt(0, 1.0, [], False, ["prevalence"])], (), False)
    'silent'
    """
    first, last = runs[0], runs[-1]
    if any(run.status is None for run in runs):
        return "hung"
    if any(run.status == 0 and run.differing for run in runs):
        return "silent"
    if last.status != 0:
        return "stuck"
    if first.status == 0:
        return "ended"
    if killed and first.status is not None and first.status < 0:
        return "recovered"
    one_sentence = len(first.sentences) == 1 and not first.traceback
    return "refused" if first.status in statuses and one_sentence else "unclear"


def bad(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Outcomes in columns that must be empty."""
    return [r for r in records if r["verdict"] in BAD or r["leaked"]]


def recorded(file: Path) -> dict[str, dict[str, Any]]:
    """Records of cases that were run before, by name."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def note(record: dict[str, Any], file: Path) -> dict[str, Any]:
    """Append a record to the file; return the record."""
    with file.open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    return record


def table(records: Sequence[dict[str, Any]]) -> str:
    """Counts of verdicts by fault, in Markdown."""
    lines = [
        f"| fault | cases | {' | '.join(VERDICTS)} | leaked |",
        "|---" * (len(VERDICTS) + 3) + "|",
    ]
    for name in [*sorted({found["fault"] for found in records}), "all"]:
        mine = [found for found in records if name in (found["fault"], "all")]
        verdicts = [found["verdict"] for found in mine]
        counts = [verdicts.count(verdict) for verdict in VERDICTS]
        counts.append(sum(bool(found["leaked"]) for found in mine))
        lines.append(f"| {name} | {len(mine)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)
