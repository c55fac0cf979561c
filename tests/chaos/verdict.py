"""Outcomes of cases, as records and as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["BAD", "VERDICTS", "Outcome", "bad", "judge", "note", "recorded", "table"]

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
answer; killed or damaged, then the right answer; another error, then the right answer;
no later run completes; other values with status 0; no end in time."""
BAD = ("stuck", "silent", "hung", "leaked")
"""Columns that must be empty; a case in ``leaked`` also has a verdict."""


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

    case: Any
    """A `Case`, of this folder or of `deployments`."""
    verdict: str
    runs: list[Any] = field(default_factory=list)
    """The run with the fault, then runs without faults."""
    landed: str = ""
    """Actual place of the fault, or the damaged file."""
    variant: str = "same"
    leaked: list[str] = field(default_factory=list)
    why: str = ""

    def record(self) -> dict[str, Any]:
        """As JSON-able values."""
        values = asdict(self)
        return {"name": self.case.name, **values.pop("case"), **values}


def judge(
    runs: Sequence[Attempt], statuses: Sequence[int], killed: bool, damaged: bool
) -> str:
    """Verdict of the runs of one case.

    Parameters
    ----------
    runs
        The disturbed run and the ordinary ones that followed, the last one final.
    statuses
        Exit status that an error of the first may have.
    killed
        Whether the first was killed, and could say nothing.
    damaged
        Whether the directory was damaged before the first, which is ordinary then.

    Examples
    --------
    >>> judge([Attempt(0, 1.0, [], False)], (), False, False)
    'ended'
    >>> judge([Attempt(0, 1.0, [], False, ["prevalence"])], (), False, True)
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
        return "recovered" if damaged else "ended"
    if killed and first.status is not None and first.status < 0:
        return "recovered"
    one_sentence = len(first.sentences) == 1 and not first.traceback
    return "refused" if first.status in statuses and one_sentence else "unclear"


def bad(
    records: Sequence[dict[str, Any]], columns: Sequence[str] = BAD
) -> list[dict[str, Any]]:
    """Outcomes in columns that must be empty."""
    return [r for r in records if r["verdict"] in columns or r["leaked"]]


def recorded(file: Path) -> dict[str, dict[str, Any]]:
    """Records of cases that were run before, by name."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def note(record: dict[str, Any], file: Path) -> dict[str, Any]:
    """Append a record to the file; return the record."""
    with file.open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    return record


def table(
    records: Sequence[dict[str, Any]],
    verdicts: Sequence[str] = VERDICTS,
    kind: str = "fault",
) -> str:
    """Counts of verdicts by fault, in Markdown; `kind`: where its name is."""
    columns = (*verdicts, "leaked")
    lines = [
        f"| fault | cases | {' | '.join(columns)} |",
        "|---" * (len(columns) + 2) + "|",
    ]
    names = sorted({found[kind] for found in records})
    for name in [*names, "all"]:
        mine = [found for found in records if name in (found[kind], "all")]
        counts = [
            sum(
                bool(found["leaked"])
                if column == "leaked"
                else found["verdict"] == column
                for found in mine
            )
            for column in columns
        ]
        lines.append(f"| {name} | {len(mine)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)
