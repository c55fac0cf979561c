"""Checks of a run's tables and settings before the plan, and before workers start."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.failures import in_stage
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import choose_source
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.head import count_tables
from xnq_dist.graph.profile.inputs import (
    InputProfile,
    check_findings,
    lines,
    profile_again,
    profile_inputs,
)
from xnq_dist.graph.sources import Sources

if TYPE_CHECKING:
    from xnq_dist.reuse import Request

__all__ = ["check_inputs", "check_request", "check_sources"]

log = logging.getLogger(__name__)


def check_sources(sources: Sources, settings: Settings) -> None:
    """Check the tables' headers: files, columns and rows must exist.

    Raises
    ------
    InputError, SettingsError
        The message names the table and what to do.
    """
    count_tables(sources, settings)
    kind = settings.cluster.kind
    record = CLUSTERS[kind]
    if record.running:
        CLUSTERS.module_of(kind).connection_to(settings.cluster)
    if record.queued:
        CLUSTERS.module_of(kind).check(settings.cluster)


@in_stage("graph")
def check_inputs(
    run: RunDirectory, sources: Sources, settings: Settings
) -> InputProfile:
    """Profile the tables and refuse what later stages could not use.

    Unchanged tables are not profiled again. Warnings and notes are logged.

    Raises
    ------
    InputError, SettingsError
        The message has all refusals of the profile.
    """
    from xnq_dist.quantify.default.scenarios import shares_left

    if sources.memberships and settings.communities not in ("auto", "given"):
        log.warning(
            "the memberships table is not used with communities = %s: set communities "
            "= given to use it",
            settings.communities,
        )
    profile = profile_inputs(sources, settings, run)
    for line in lines(profile, settings.disclosure.min_size, brief=True):
        log.info("%s", line)
    check_findings(profile.findings)
    counts = {str(value): labelled for value, labelled in profile.classes}
    _check_classes(settings, list(counts))
    prior, total = settings.labels.prior, profile.tables["nodes"]["rows"]
    unlabelled = total > sum(counts.values())
    if prior and unlabelled and settings.quantifier == "auto":
        shares_left(prior, counts, total)
    return profile


@in_stage("labels")
def check_request(run: RunDirectory, request: Request) -> None:
    """Refuse new labels, memberships or settings that estimates could not use.

    Raises
    ------
    InputError, SettingsError
        The message has all refusals of the profile.
    StageError
        When the graph or the labels of `base` are not complete.
    """
    from xnq_dist.graph import layout

    base, settings = RunDirectory(request.base), request.settings
    graph, labels = base.complete("graph"), base.complete("labels")
    source = choose_source(request.sources.memberships, settings)
    profile = profile_again(
        settings,
        run,
        (layout.load_ids(graph), graph.inputs["nodes"]),
        request.labels,
        request.sources if source == "given" else None,
    )
    check_findings(profile.findings)
    classes = labels.facts["classes"]
    if request.labels is not None:
        classes = [value for value, _ in profile.classes]
    _check_classes(settings, [str(value) for value in classes])


def _check_classes(settings: Settings, classes: list[str]) -> None:
    """Refuse a quantifier, prior or report.class that these classes do not have."""
    from xnq_dist.core.records import QUANTIFIERS
    from xnq_dist.quantify.default.scenarios import check_prior

    name = settings.quantifier
    if not QUANTIFIERS[name].defined_for(len(classes)):
        raise SettingsError(
            f"quantifier={name} is defined for two classes and the labels have "
            f"{len(classes)} ({', '.join(classes[:12])}): set quantifier=auto"
        )
    check_prior(settings.labels.prior, tuple(classes))
    report = settings.report
    for key, names in (
        ("report.class", {report.shown_class} - {"auto"}),
        ("report.class_names", set(report.class_names)),
    ):
        for name in sorted(names - {*classes}):
            raise SettingsError(
                f"{key} = {name} is not a class of the labels "
                f"({', '.join(classes[:12])}): correct the name"
            )
