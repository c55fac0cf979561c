"""The stages ``readout`` and ``posteriors``; the numerics are in the other modules.

One task joins the rows that models are fitted to, few tasks fit them on their threads,
and one task per partition writes its posteriors. The client has labels and facts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from xnq_dist.core.failures import stage_errors
from xnq_dist.core.method_records import METHODS
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.settings import Settings
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import (
    Manifest,
    RunDirectory,
)
from xnq_dist.core.waiting import gather
from xnq_dist.graph.layout import load_labels
from xnq_dist.groups.own_groups import node_groups
from xnq_dist.readout.rows import FEATURES, GROUPS
from xnq_dist.readout.work import Embedded, ReadoutWork

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["fit_readout", "write_posteriors"]

log = logging.getLogger(__name__)


def fit_readout(
    run: RunDirectory, settings: Settings, client: Client, progress: Progress = silent
) -> Manifest:
    """Run the stage ``readout``, or reuse it if complete.

    Parameters
    ----------
    run
        A run directory with the stages ``graph``, ``labels`` and ``embeddings``.
    settings
        Settings of the run.
    client
        The workers.
    progress
        Called with the progress of each step.

    Returns
    -------
    Manifest
        Of the stage; its facts hold ``prior`` and ``classes``.

    Raises
    ------
    InputError
        When a class has too few labelled nodes.
    DoesNotFitError
        When ``readout.memory`` is too small for enough labelled rows, or workers die
        again and again.
    InfrastructureError
        When the disk is full or failing, or the cluster is lost.
    StageError
        When an earlier stage is missing, or files do not fit each other.
    """
    source = Embedded.of(run, settings)
    graph, labels = source.manifest, source.labels
    inputs = STAGES["readout"].made_from(run.manifests(), {}, settings)
    with stage_errors(run.uri, "readout"):
        fitted = run.reuse("readout", inputs)
        if fitted is not None:
            return fitted
        attempt = run.stage("readout").begin()
        groups = node_groups(graph, settings)
        loaded = load_labels(labels)
        used, weights = loaded.codes, loaded.weights
        roles = loaded.roles if labels.facts["has_roles"] else None
        if roles is not None:
            used[roles < 0] = -1  # they leave a label out
        work = ReadoutWork(
            client,
            source,
            used,
            np.broadcast_to(1.0, len(used)) if weights is None else weights,
            labels.facts["classes"],
            settings,
            attempt,
            progress,
            roles=roles,
            groups=groups.links[0],
        )
        files, facts = METHODS.module_of(settings.method).fit(work)
        by_links = dict(zip(("groups", "fine"), groups.links, strict=False))
        kept = attempt.write_arrays(GROUPS, **by_links, degree=groups.degree)
        _report(facts)
        return attempt.commit([*files, kept], inputs, facts)


def write_posteriors(
    run: RunDirectory, settings: Settings, client: Client, progress: Progress = silent
) -> Manifest:
    """Run the stage ``posteriors``, or reuse it if complete.

    Arguments and errors as for `fit_readout`, which made the stage ``readout``.
    """
    fitted = run.complete("readout")
    inputs = STAGES["posteriors"].made_from({"readout": fitted}, {}, settings)
    with stage_errors(run.uri, "posteriors"):
        written = run.reuse("posteriors", inputs)
        if written is not None:
            return written
        source = Embedded.of(run, settings)
        attempt, classes = run.stage("posteriors").begin(), fitted.facts["classes"]
        write = METHODS.module_of(settings.method).write_posteriors
        (record,), features = fitted.named("readout-"), fitted.named(FEATURES)
        made = run.stage("readout"), record, attempt, classes
        tasks = [
            client.submit(
                write, part, number, *made, *features[number : number + 1], pure=False
            )
            for number, part in enumerate(source.parts(client))
        ]
        files = [*chain(*gather(client, tasks, partial(progress, "partitions")))]
        facts = {name: fitted.facts[name] for name in ("classes", "prior")}
        facts["n_nodes"] = source.manifest.facts["n_nodes"]
        return attempt.commit(files, inputs, facts)


def _report(facts: Mapping[str, Any]) -> None:
    """Log how good held-out posteriors are, and what scores of another model add."""
    log.info(
        "readout: C = %g, log-loss %.6g, accuracy %.6g",
        *(facts[name] for name in ("C", "log_loss", "accuracy")),
    )
    skill = facts["skill"]
    if skill is not None and skill["lower"] <= 0:
        log.warning(
            "readout: posteriors are not significantly better than the class shares "
            "alone: they reduce %s, so estimates of all communities are close to the "
            "labels' shares; add labels, or features that distinguish the classes",
            _reduction(skill),
        )
    if scores := facts.get("scores"):
        names, gain = ", ".join(scores["columns"]), scores["gain"]
        if gain["lower"] > 0:
            log.info("readout: the scores (%s) reduce %s", names, _reduction(gain))
        else:
            log.warning(
                "readout: the scores (%s) do not help measurably: they reduce %s; "
                "leave them out of columns.scores, or add labels",
                names,
                _reduction(gain),
            )


def _reduction(skill: Mapping[str, float]) -> str:
    """How much a `skill` takes off the log-loss, in words."""
    value, lower, upper = (100 * skill[name] for name in ("value", "lower", "upper"))
    return f"the log-loss by {value:.1f} % (95 % interval {lower:.1f} to {upper:.1f})"
