"""What Prefect's page shows of a run: where it stands, what changed, what is next."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.app.run_progress import current_watch, seconds_left_text
from xnq_dist.app.run_status import NEXT, RunStatus
from xnq_dist.core.errors import XnqError
from xnq_dist.core.redaction import redacted
from xnq_dist.core.store import Published, RunDirectory, Version

if TYPE_CHECKING:
    from xnq_dist.app.reporting import Artifacts

__all__ = ["RunPage"]

SEND_EVERY = 5.0
"""Seconds between two updates of the text."""
NAMED = 10
"""Maximum number of changed communities that are named."""


class RunPage:
    """A Markdown artifact of a flow run, and the message of its last state.

    Parameters
    ----------
    address
        The setting `watch.address`.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        run: RunDirectory,
        status: RunStatus,
        address: str | None,
    ) -> None:
        self._artifacts = artifacts
        self._run = run
        self._status = status
        self._address = address
        self._sent = 0.0
        self._before = Published(run).pointer().get("run_id")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show where the block stands, and last how it ended."""
        watch = current_watch()
        watch.shown.append(self._step)
        try:
            yield
        except BaseException as error:
            self._status.end(error, "run")
            raise
        else:
            self._status.end(None, "run")
        finally:
            watch.shown.remove(self._step)
            # An error here must not take the place of the run's.
            with suppress(OSError, XnqError):
                self._artifacts.page(self.text())

    def _step(self, text: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._sent >= SEND_EVERY:
            self._sent = now
            self._artifacts.page(self.text())

    def message(self) -> str:
        """One sentence on a run that is done, for Prefect's state."""
        with suppress(OSError, XnqError):
            if version := Published(self._run).current():
                return f"{self._news(version)}. Report: {self._place('report.html')}"
        return ""

    def text(self) -> str:
        """The Markdown text."""
        status = self._status
        lines = [f"# {self._headline()}", ""]
        if status.state == "failed":
            lines += [f"**Cause:** {_plain(status.message)}", ""]
            lines += [f"**Next:** {NEXT[status.exit_code or 1]}.", ""]
        version = Published(self._run).current() if status.ended else None
        if version is not None:
            stay = status.state == "failed"
            when = version.manifest.created
            what = "Results of the last good run" if stay else "Report"
            lines += [f"**{what}:** {self._link('report.html')} ({when})", ""]
            if not stay:
                lines += [f"**Since last time:** {self._news(version)}.", ""]
                lines += [*_largest(version)] if self._is_new(version) else []
        workers = f"{status.workers}, {len(status.lost_workers)} lost"
        if status.lost_workers:
            workers += f" ({', '.join(map(_plain, status.lost_workers))})"
        lines += [f"| run directory | {_plain(self._run.uri)} |", "|---|---|"]
        lines += [
            f"| {name} | {value} |"
            for name, value in (
                ("client", _plain(status.host)),
                ("run id", f"`{status.run_id}`"),
                ("workers", workers),
                ("repeated stages", str(status.retries)),
            )
        ]
        return "\n".join(lines)

    def _headline(self) -> str:
        status = self._status
        if status.state == "failed":
            return f"Failed in stage {status.stage}" if status.stage else "Failed"
        if status.state == "done":
            return "Done"
        left = seconds_left_text(current_watch().left.left())
        return status.place(left) or "Beginning"

    def _is_new(self, version: Version) -> bool:
        return version.run_id != self._before

    def _news(self, version: Version) -> str:
        """What changed since the last results, as counts."""
        if not self._is_new(version):
            return f"nothing changed since {version.manifest.created}"
        counts = _changes(version)
        if not counts:
            return "first results, or not comparable with those before"
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


def _changes(version: Version) -> dict[str, int]:
    """Communities changed beyond chance (``both``), new, gone; empty: not compared."""
    if "changes" not in version.tables():
        return {}
    rows = version.read("changes", ["community", "status", "changed"])
    kept = pc.or_(
        pc.fill_null(rows["changed"], False), pc.not_equal(rows["status"], "both")
    )
    rows = rows.filter(kept)
    return {
        name: pc.count_distinct(
            rows.filter(pc.equal(rows["status"], name))["community"]
        ).as_py()
        for name in ("both", "new", "gone")
    }


def _largest(version: Version) -> list[str]:
    """A Markdown table of the largest changes; suppressed communities are left out."""
    if "changes" not in version.tables():
        return []
    names = ["community", "class", "before", "prevalence", "changed", "rank_effect"]
    rows = version.read("changes", names)
    rows = rows.filter(pc.fill_null(rows["changed"], False))
    hidden = version.read("prevalence", ["community", "quality"])
    hidden = hidden.filter(pc.equal(hidden["quality"], "suppressed"))["community"]
    text = [pc.cast(each, pa.string()) for each in (rows["community"], hidden)]
    rows = rows.filter(pc.invert(pc.is_in(text[0], text[1].combine_chunks())))
    best: dict[str, dict[str, Any]] = {}
    for row in rows.sort_by("rank_effect").slice(0, 9 * NAMED).to_pylist():
        best.setdefault(str(row["community"]), row)  # one class of each
    if not best:
        return []
    head = ["| community | class | before | now |", "|---|---|---|---|"]
    shown = [
        f"| {_plain(row['community'])} | {_plain(row['class'])} "
        f"| {100 * row['before']:.1f} % | {100 * row['prevalence']:.1f} % |"
        for row in [*best.values()][:NAMED]
    ]
    return [*head, *shown, ""]


def _plain(value: object) -> str:
    """Text from data that Markdown shows as it is, in one line."""
    text = " ".join(str(redacted(str(value))).split())[:1000]
    marks = r"\`*_{}[]<>()#|!&"
    return "".join(f"&#{ord(c)};" if c in marks else c for c in text)
