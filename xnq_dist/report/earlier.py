"""Earlier results that a run's are compared with, and whether they can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xnq_dist.core.config import Settings
from xnq_dist.core.errors import SettingsError, XnqError
from xnq_dist.core.inputs import PREVIOUS
from xnq_dist.core.store import Folder, Published, RunDirectory, Version
from xnq_dist.report.view import PrevalenceView

__all__ = ["Earlier", "OwnFacts", "check_named", "earlier_results", "why_not"]

MUST_AGREE = ("quantifier", "labelled")
"""Settings without which two prevalences are not of the same thing."""
COLUMNS = (
    "community",
    "class",
    "n_nodes",
    "n_labelled",
    "n_estimated",
    "prevalence",
    "lower",
    "upper",
    "converged",
    "fit_pvalue",
    "flagged",
    "note",
)


@dataclass(frozen=True)
class OwnFacts:
    """What the manifest of published results says of them."""

    source: str
    """Of the communities: ``given``, ``leiden`` or ``column:NAME``."""
    detected: str
    """Checksum of the detected communities' table; empty when they were given."""
    data: str
    """Fingerprint of the contents of all tables read."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> OwnFacts:
        """From a manifest's; empty where it does not say."""
        return cls(
            *(str(facts.get(name) or "") for name in ("source", "detected", "data"))
        )


@dataclass(frozen=True, eq=False)
class Earlier:
    """The results of an earlier run."""

    where: str
    """As a reader is told."""
    created: str
    settings: Mapping[str, Any]
    facts: OwnFacts
    view: PrevalenceView = field(repr=False)
    run_id: str = ""
    """Of the version that they were read from."""

    @property
    def level(self) -> float:
        """Probability of its intervals."""
        return float((self.settings.get("intervals") or {}).get("level", 0.95))


def earlier_results(
    run: RunDirectory, settings: Settings, results: str = ""
) -> Earlier | None:
    """What the run is to be compared with; None when there is nothing or no wish.

    Parameters
    ----------
    results
        Fingerprint of the results: of those published before, the last that are
        other results count.

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
            return _read(version, "the previous state of this run directory")
    return None


def check_named(
    settings: Settings, own: str = "", classes: Sequence[str] = ()
) -> Earlier | None:
    """The run that `anomalies.last` names, as far as it is known what compares with it.

    Parameters
    ----------
    settings
        Of this run.
    own
        This run's directory; empty while it is not known.
    classes
        Of this run; none while they are not known.

    Raises
    ------
    SettingsError
        When it is this run's own directory, cannot be read, is not whole, has no
        intervals or is of other classes or settings.
    """
    wanted = settings.anomalies.last
    if wanted is None or wanted == PREVIOUS:
        return None
    if own and Folder.of(wanted).uri == own:
        raise SettingsError(
            f"anomalies.last = {wanted} is this run's own directory: set "
            "anomalies.last = previous"
        )
    found = _named(wanted)
    reason = _other_settings(found, settings) or _other_classes(found, classes)
    if reason:
        raise SettingsError(f"anomalies.last: {reason}")
    return found


def why_not(
    earlier: Earlier, settings: Settings, classes: Sequence[str], own: OwnFacts
) -> str:
    """Why two results cannot be compared, in a sentence; empty when they can.

    Parameters
    ----------
    earlier
        The earlier results.
    settings
        Of this run.
    classes
        Of this run.
    own
        Of this run.
    """
    reason = _other_settings(earlier, settings) or _other_classes(earlier, classes)
    if reason:
        return reason
    then = earlier.facts.source
    named = any(source.startswith("column:") for source in (own.source, then))
    if then and named and own.source != then:
        return (
            f"{earlier.where} is of the communities {then} and this run of "
            f"{own.source}: what has the same name there is another community"
        )
    if "leiden" in (own.source, earlier.facts.source) and (
        own.detected != earlier.facts.detected
    ):
        return (
            f"{earlier.where} is of other detected communities, whose numbers are not "
            "those of this run: name the communities with --memberships, so that they "
            "are the same every time"
        )
    return ""


def _other_settings(earlier: Earlier, settings: Settings) -> str:
    for name in MUST_AGREE:
        then, now = earlier.settings.get(name), getattr(settings, name)
        if then != now:
            return (
                f"{earlier.where} was made with {name} = {then} and this run with "
                f"{now}: what differs could be the method alone; use the same"
            )
    label = (earlier.settings.get("columns") or {}).get("label")
    if label != settings.columns.label:
        return (
            f"{earlier.where} is of the labels in column {label} and this run of "
            f"{settings.columns.label}: name a run of the same labels"
        )
    weight = (earlier.settings.get("columns") or {}).get("node_weight")
    if weight != settings.columns.node_weight:
        return (
            f"{earlier.where} was made with columns.node_weight = {weight} and this "
            f"run with {settings.columns.node_weight}: name a run of the same weights"
        )
    if not earlier.view.has_intervals:
        return (
            f"{earlier.where} has no intervals, so that chance cannot be told from "
            "change: name a run that has them"
        )
    return ""


def _other_classes(earlier: Earlier, classes: Sequence[str]) -> str:
    if not classes or set(classes) == set(earlier.view.classes):
        return ""
    return (
        f"{earlier.where} has the classes {_names(earlier.view.classes)} and this run "
        f"{_names(classes)}: name a run of the same classes, or null"
    )


ADVICE = "name a finished run, previous, or null"


def _named(wanted: str) -> Earlier:
    """The results that another run directory has published."""
    try:
        version = Published(RunDirectory(wanted)).current()
        if version is not None:
            return _read(version, wanted)
    except (XnqError, OSError) as error:
        raise SettingsError(
            f"anomalies.last: {wanted} cannot be read ({error}): {ADVICE}"
        ) from error
    raise SettingsError(
        f"anomalies.last: {wanted} is not a whole run with published results: {ADVICE}"
    )


def _read(version: Version, where: str) -> Earlier:
    manifest = version.manifest
    rows = version.read("prevalence", COLUMNS)
    return Earlier(
        where=where,
        created=str(manifest.facts.get("created") or manifest.created),
        settings=manifest.inputs.get("settings") or {},
        facts=OwnFacts.of(manifest.facts),
        view=PrevalenceView.of(rows),
        run_id=version.run_id,
    )


def _names(classes: Sequence[str]) -> str:
    shown = ", ".join(classes[:6])
    return f"{shown}, …" if len(classes) > 6 else shown
