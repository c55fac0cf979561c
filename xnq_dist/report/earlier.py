"""Earlier results that a run is compared with, and checks of comparability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xnq_dist.core.errors import SettingsError, XnqError
from xnq_dist.core.inputs import PREVIOUS
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Folder, Published, RunDirectory, Version
from xnq_dist.report.view import PrevalenceView

__all__ = [
    "Earlier",
    "ResultFacts",
    "check_named",
    "earlier_results",
    "read_version",
    "why_not",
]

MUST_AGREE = ("quantifier", "labelled")
"""Settings that must be the same for two prevalences to be comparable."""


@dataclass(frozen=True)
class ResultFacts:
    """Facts in the manifest of published results that decide on comparability."""

    source: str
    """Source of the communities: ``given``, ``leiden`` or ``column:NAME``."""
    detected: str
    """Checksum of the table of detected communities; empty when they were given."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ResultFacts:
        """Read them from a manifest's facts; a missing fact is empty."""
        return cls(*(str(facts.get(name) or "") for name in ("source", "detected")))


@dataclass(frozen=True, eq=False)
class Earlier:
    """The results of an earlier run."""

    where: str
    """Name of these results in messages and on the page."""
    created: str
    settings: Mapping[str, Any]
    facts: ResultFacts
    view: PrevalenceView = field(repr=False)
    run_id: str = ""
    """Run id of the version that they were read from."""

    @property
    def level(self) -> float:
        """Confidence level of its intervals."""
        return float((self.settings.get("intervals") or {}).get("level", 0.95))


def earlier_results(
    run: RunDirectory, settings: Settings, results: str = ""
) -> Earlier | None:
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
            return read_version(version, "the previous state of this run directory")
    return None


def check_named(
    settings: Settings, directory: str = "", classes: Sequence[str] = ()
) -> Earlier | None:
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
    reason = _other_settings(earlier, settings) or _other_classes(earlier, classes)
    if reason:
        raise SettingsError(f"anomalies.last: {reason}")
    return earlier


def why_not(
    earlier: Earlier, settings: Settings, classes: Sequence[str], facts: ResultFacts
) -> str:
    """Why two results cannot be compared, in a sentence; empty when they can.

    Parameters
    ----------
    earlier
        The earlier results.
    settings, classes, facts
        Settings, classes and facts of this run.
    """
    reason = _other_settings(earlier, settings) or _other_classes(earlier, classes)
    if reason:
        return reason
    then = earlier.facts.source
    named = any(source.startswith("column:") for source in (facts.source, then))
    if then and named and facts.source != then:
        return (
            f"{earlier.where} has the communities {then} and this run {facts.source}, "
            "where the same name means another community: name a run with the same "
            "communities"
        )
    if "leiden" in (facts.source, then) and facts.detected != earlier.facts.detected:
        return (
            f"{earlier.where} has other detected communities, and their numbers do not "
            "correspond to those of this run: give the communities with --memberships, "
            "so that they are the same in every run"
        )
    return ""


def _other_settings(earlier: Earlier, settings: Settings) -> str:
    for name in MUST_AGREE:
        then, now = earlier.settings.get(name), getattr(settings, name)
        if then != now:
            return (
                f"{earlier.where} was made with {name} = {then} and this run with "
                f"{now}, which alone can change estimates: use the same value in both"
            )
    label = (earlier.settings.get("columns") or {}).get("label")
    if label != settings.columns.label:
        return (
            f"{earlier.where} used the labels in column {label} and this run those in "
            f"{settings.columns.label}: name a run with the same label column"
        )
    if not earlier.view.has_intervals:
        return (
            f"{earlier.where} has no intervals, so a change cannot be distinguished "
            "from chance: name a run with intervals"
        )
    return ""


def _other_classes(earlier: Earlier, classes: Sequence[str]) -> str:
    if not classes or set(classes) == set(earlier.view.classes):
        return ""
    return (
        f"{earlier.where} has the classes {_names(earlier.view.classes)} and this run "
        f"{_names(classes)}: name a run with the same classes, or set "
        "anomalies.last = null"
    )


ADVICE = "set it to the directory of a finished run, to previous or to null"


def _named(directory: str) -> Earlier:
    """The published results of another run directory."""
    try:
        version = Published(RunDirectory(directory)).current()
        if version is not None:
            return read_version(version, directory)
    except (XnqError, OSError) as error:
        raise SettingsError(
            f"anomalies.last: {directory} cannot be read ({error}): {ADVICE}"
        ) from error
    raise SettingsError(
        f"anomalies.last: {directory} is not a complete run with published results: "
        f"{ADVICE}"
    )


def read_version(version: Version, where: str) -> Earlier:
    """The results in a version; `where` names them in messages."""
    manifest = version.manifest
    return Earlier(
        where=where,
        created=str(manifest.facts.get("created") or manifest.created),
        settings=manifest.inputs.get("settings") or {},
        facts=ResultFacts.of(manifest.facts),
        view=PrevalenceView.of(version.read("prevalence")),
        run_id=version.run_id,
    )


def _names(classes: Sequence[str]) -> str:
    shown = ", ".join(classes[:6])
    return f"{shown}, …" if len(classes) > 6 else shown
