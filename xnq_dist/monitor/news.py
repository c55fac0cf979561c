"""What a run has to tell when it is over, from its published tables.

Markdown for Prefect's page, without suppressed communities.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any

import pyarrow.compute as pc

from xnq_dist.core.errors import XnqError
from xnq_dist.core.redaction import redacted
from xnq_dist.core.store import Published, RunDirectory, Version, read_published
from xnq_dist.monitor.progress import current_watch, seconds_left_text
from xnq_dist.monitor.status import NEXT, RunStatus
from xnq_dist.quantify.checks.quality import without_values
from xnq_dist.steps.history import read_history

__all__ = ["RunPage", "changed_rows", "published_rows"]

NAMED = 10
"""Maximum number of changed communities that are named."""


def published_rows(run: RunDirectory, count: int) -> list[dict[str, Any]]:
    """The first rows of the published prevalence table, suppressed values left out."""
    table = read_published(run.location).read("prevalence").slice(0, count)
    return list(without_values(table).to_pylist())


def changed_rows(run: RunDirectory, count: int) -> list[dict[str, Any]]:
    """Communities that changed since the run before, the largest changes first."""
    rows = read_history(run.location).changed().slice(0, count)
    return list(rows.to_pylist())


class RunPage:
    """Markdown on where a run stands or how it ended, and one sentence on its end.

    Parameters
    ----------
    address
        The setting `watch.address`.
    """

    def __init__(
        self, run: RunDirectory, status: RunStatus, address: str | None
    ) -> None:
        self._run, self._status, self._address = run, status, address
        self._before = Published(run).pointer().get("run_id")

    def published(self) -> Version | None:
        """The results, if they were published since the page was made."""
        version = Published(self._run).current()
        return version if version and version.run_id != self._before else None

    def message(self) -> str:
        """One sentence on a run that is done, for Prefect's state."""
        with suppress(OSError, XnqError):
            if version := Published(self._run).current():
                return f"{self.news(version)}. Report: {self._place('report.html')}"
        return ""

    def text(self) -> str:
        """The Markdown text."""
        status = self._status
        failed = status.state == "failed"
        lines = [f"# {self._headline()}", ""]
        if failed:
            lines += [f"**Cause:** {_plain(status.message)}", ""]
            lines += [f"**Next:** {NEXT[status.exit_code or 1]}.", ""]
        version = Published(self._run).current() if status.ended else None
        if version is not None:
            what = "Results of the last good run" if failed else "Report"
            when = version.manifest.created
            lines += [f"**{what}:** {self._link('report.html')} ({when})", ""]
        if version is not None and not failed:
            lines += [f"**Since last time:** {self.news(version)}.", ""]
            lines += _largest(self._run) if self.published() else []
        lines += [f"| run directory | {_plain(self._run.uri)} |", "|---|---|"]
        lost = ", ".join(status.lost_workers)
        rows = {
            "client": _plain(status.host),
            "run id": f"`{status.run_id}`",
            "workers": f"{status.workers}, {len(status.lost_workers)} lost"
            + (lost and f" ({_plain(lost)})"),
            "repeated stages": status.retries,
        }
        return "\n".join([*lines, *(f"| {name} | {rows[name]} |" for name in rows)])

    def _headline(self) -> str:
        status = self._status
        if status.state == "failed":
            return f"Failed in stage {status.stage}" if status.stage else "Failed"
        if status.state == "done":
            return "Done"
        left = seconds_left_text(current_watch().left.left())
        return status.place(left) or "Beginning"

    def news(self, version: Version) -> str:
        """What changed since the last results, as counts."""
        if version.run_id == self._before:
            return f"nothing changed since {version.manifest.created}"
        if "changes" not in version.tables():
            return "first results, or not comparable with those before"
        rows = version.read("changes", ["community", "status", "changed"])
        moved = pc.fill_null(rows["changed"], False)
        rows = rows.filter(pc.or_(moved, pc.not_equal(rows["status"], "both")))
        counts = {
            status: len(pc.unique(rows.filter(pc.equal(rows["status"], status))[0]))
            for status in ("both", "new", "gone")
        }
        return (
            f"{counts['both']:,} communities changed beyond chance, "
            f"{counts['new']:,} new, {counts['gone']:,} gone"
        )

    def _place(self, name: str) -> str:
        if self._address:
            return f"{self._address.rstrip('/')}/{name}"
        return str(self._run.folder.uri_of(name))

    def _link(self, name: str) -> str:
        place = self._place(name)
        return f"[{_plain(place)}]({place})" if self._address else _plain(place)


def _largest(run: RunDirectory) -> list[str]:
    """A Markdown table of the largest changes, one class of each community."""
    best: dict[str, dict[str, Any]] = {}
    for row in changed_rows(run, 9 * NAMED):
        best.setdefault(str(row["community"]), row)
    if not best:
        return []
    rows = (
        f"| {_plain(row['community'])} | {_plain(row['class'])} "
        f"| {100 * (row['prevalence'] - row['effect']):.1f} % "
        f"| {100 * row['prevalence']:.1f} % |"
        for row in islice(best.values(), NAMED)
    )
    return ["| community | class | before | now |", "|---|---|---|---|", *rows, ""]


def _plain(value: object) -> str:
    """Text from data that Markdown shows as it is, in one line."""
    text = " ".join(str(redacted(str(value))).split())[:1000]
    marks = r"\`*_{}[]<>()#|!&"
    return "".join(f"&#{ord(c)};" if c in marks else c for c in text)
