"""Earlier results that a run is compared with, and checks of comparability."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from xnq_dist.core.errors import SettingsError, XnqError
from xnq_dist.core.inputs import PREVIOUS
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Folder, Published, RunDirectory
from xnq_dist.steps.results import Results, Run

__all__ = [
    "check_named",
    "comparable",
    "earlier_results",
    "what_must_agree",
    "why_not",
]

log = logging.getLogger(__name__)


def earlier_results(
    run: RunDirectory, settings: Settings, results: str = ""
) -> Run | None:
    """Earlier results to compare the run with; None if there are none or by setting.

    Parameters
    ----------
    results
        Fingerprint of the current results; the newest published version with another
        fingerprint is used.

    Raises
    ------
    SettingsError
        When the results that `anomalies.last` names cannot be used.
    DamagedError
        When earlier results of this run directory are damaged.
    """
    if settings.anomalies.last != PREVIOUS:
        return check_named(settings, run.uri)
    for version in Published(run).history():
        if version.manifest.facts.get("results") != results:
            return Run.read(version, "the previous state of this run directory")
    return None


def check_named(
    settings: Settings, directory: str = "", classes: Sequence[str] = ()
) -> Run | None:
    """Results of the run that `anomalies.last` names, checked; None if it names none.

    Parameters
    ----------
    settings
        Settings of this run.
    directory
        URI of this run's directory; empty while it is not known.
    classes
        Classes of this run; empty while they are not known.

    Raises
    ------
    SettingsError
        When the setting names this run's directory, or a run that cannot be read, is
        incomplete, has no intervals or has other classes or settings.
    """
    last = settings.anomalies.last
    if last is None or last == PREVIOUS:
        return None
    if directory and Folder.of(last).uri == directory:
        raise SettingsError(
            f"anomalies.last = {last} is this run's own directory: set "
            "anomalies.last = previous"
        )
    earlier = _named(last)
    known = _of_settings(settings.model_dump(mode="json"))
    if classes:
        known["classes"] = sorted(classes)
    if reason := _difference(earlier, known):
        raise SettingsError(f"anomalies.last: {reason}")
    return earlier


def comparable(earlier: Run | str | None, results: Results) -> Run | str | None:
    """Earlier results, or why this run cannot be compared with them; None: none."""
    if not isinstance(earlier, Run):
        return earlier
    reason = why_not(earlier, results.now)
    if not reason:
        return earlier
    log.info("not compared with earlier results: %s", reason)
    return reason


def why_not(earlier: Run, now: Run) -> str:
    """Why two results cannot be compared, in a sentence; empty when they can."""
    if reason := _difference(earlier, what_must_agree(now)):
        return reason
    if earlier.detected != now.detected:
        return (
            f"{earlier.where} has other detected communities, and their numbers do not "
            "correspond to those of this run: give the communities with --memberships, "
            "so that they are the same in every run"
        )
    if not now.view.has_intervals:
        return (
            "this run has no intervals, so a change cannot be distinguished from "
            "chance: choose a quantifier that computes intervals"
        )
    return ""


def what_must_agree(run: Run) -> dict[str, Any]:
    """Values that are the same in two runs with comparable estimates.

    Where communities were detected, these must be the same too.
    """
    return {
        **_of_settings(run.settings),
        "communities": run.source if run.source.startswith("column:") else "",
        "classes": sorted(run.view.classes),
    }


def _of_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "quantifier": settings.get("quantifier"),
        "labelled": settings.get("labelled"),
        "columns.label": (settings.get("columns") or {}).get("label"),
    }


def _difference(earlier: Run, known: Mapping[str, Any]) -> str:
    """What differs from the known values of this run; also missing intervals."""
    before = what_must_agree(earlier)
    for name, value in known.items():
        if before[name] != value:
            then, now = (
                ", ".join(each[:6]) if isinstance(each, list) else each or "given"
                for each in (before[name], value)
            )
            return (
                f"{earlier.where} was made with {name} = {then} and this run with "
                f"{now}, so their estimates cannot be compared: use the same in both, "
                "or set anomalies.last = null"
            )
    if not earlier.view.has_intervals:
        return (
            f"{earlier.where} has no intervals, so a change cannot be distinguished "
            "from chance: name a run with intervals"
        )
    return ""


ADVICE = "set it to the directory of a finished run, to previous or to null"


def _named(directory: str) -> Run:
    """The published results of another run directory."""
    try:
        version = Published(RunDirectory(directory)).current()
        if version is not None:
            return Run.read(version, directory)
    except (XnqError, OSError) as error:
        raise SettingsError(
            f"anomalies.last: {directory} cannot be read ({error}): {ADVICE}"
        ) from error
    raise SettingsError(
        f"anomalies.last: {directory} is not a complete run with published results: "
        f"{ADVICE}"
    )
