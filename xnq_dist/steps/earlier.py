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

__all__ = ["check_named", "comparable", "earlier_results", "why_not"]

log = logging.getLogger(__name__)

MUST_AGREE = ("quantifier", "labelled")
"""Settings that must be the same for two prevalences to be comparable."""


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
    values = settings.model_dump(mode="json")
    reason = _other_settings(earlier, values) or _other_classes(earlier, classes)
    if reason:
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
    reason = _other_settings(earlier, now.settings)
    reason = reason or _other_classes(earlier, now.view.classes)
    if reason:
        return reason
    named = any(run.source.startswith("column:") for run in (earlier, now))
    if earlier.source and named and earlier.source != now.source:
        return (
            f"{earlier.where} has the communities {earlier.source} and this run "
            f"{now.source}, where the same name means another community: name a run "
            "with the same communities"
        )
    if "leiden" in (earlier.source, now.source) and earlier.detected != now.detected:
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


def _other_settings(earlier: Run, now: Mapping[str, Any]) -> str:
    for name in MUST_AGREE:
        if earlier.settings.get(name) != now[name]:
            return (
                f"{earlier.where} was made with {name} = {earlier.settings.get(name)} "
                f"and this run with {now[name]}, which alone can change estimates: use "
                "the same value in both"
            )
    label = (earlier.settings.get("columns") or {}).get("label")
    if label != now["columns"]["label"]:
        return (
            f"{earlier.where} used the labels in column {label} and this run those in "
            f"{now['columns']['label']}: name a run with the same label column"
        )
    if not earlier.view.has_intervals:
        return (
            f"{earlier.where} has no intervals, so a change cannot be distinguished "
            "from chance: name a run with intervals"
        )
    return ""


def _other_classes(earlier: Run, classes: Sequence[str]) -> str:
    if not classes or set(classes) == set(earlier.view.classes):
        return ""
    return (
        f"{earlier.where} has the classes {_names(earlier.view.classes)} and this run "
        f"{_names(classes)}: name a run with the same classes, or set "
        "anomalies.last = null"
    )


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


def _names(classes: Sequence[str]) -> str:
    shown = ", ".join(classes[:6])
    return f"{shown}, …" if len(classes) > 6 else shown
