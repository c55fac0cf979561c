"""The evaluation on communities: resumable cases, and their results as one table.

A case is a design, a share and a draw of labels: `xnq+` computes posteriors from these
labels alone, and every estimator is then applied to every kind of communities. Every
draw has another reservoir, so that the coverage of the intervals includes the
uncertainty from the seed. Posteriors and scores of the rivals that are in the folder
are reused: another estimator needs no new fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import fingerprint
from xnq_dist.evaluation.datasets import family_of
from xnq_dist.evaluation.designs import (
    DESIGNS,
    GROUP_RESOLUTION,
    LabelPool,
    draw_labels,
)
from xnq_dist.evaluation.keep import arrow_schema
from xnq_dist.evaluation.methods.embedded import plus_posteriors
from xnq_dist.evaluation.real import Case, estimators_of, score_case
from xnq_dist.evaluation.regions import (
    MIN_SIZE,
    REGIONS,
    SAMPLE,
    SAMPLES,
    by_kind,
    draw_attributes,
    draw_regions,
    draw_samples_by_class,
)
from xnq_dist.evaluation.rivals import rival_scores
from xnq_dist.evaluation.scoring import defined_quantifiers
from xnq_dist.evaluation.search import NodeRows
from xnq_dist.evaluation.task import EvaluationWork, keep_arrays
from xnq_dist.graph import layout
from xnq_dist.graph.tables import open_table
from xnq_dist.groups.leiden import leiden
from xnq_dist.groups.own_groups import FINE
from xnq_dist.quantify.communities import from_memberships
from xnq_dist.quantify.default.estimator_fit import Held
from xnq_dist.quantify.interface import Communities
from xnq_dist.readout.calibration import PRIOR_ROWS, fit_calibration

if TYPE_CHECKING:
    from distributed import Client
    from scipy.sparse import csr_array

__all__ = [
    "CasePlan",
    "check_plan",
    "evaluate_communities",
    "kept_case",
    "sets_of_kinds",
]

MATTER = {"backend", "reservoir", "exchange", "readout"}
"""Settings that posteriors depend on."""


@dataclass(frozen=True)
class CasePlan:
    """Settings of an evaluation on communities."""

    kinds: Sequence[str]
    """Names in `regions.KINDS`."""
    label_shares: Sequence[float]
    designs: Sequence[str] = ("random", "half")
    """Names in `designs.DESIGNS`."""
    quantifiers: Sequence[str] | None = None
    """Names of quantifiers; None: all."""
    draws: int = 3
    """Number of random draws of the labelled nodes."""


def check_plan(plan: CasePlan, memberships: Sequence[str | None]) -> None:
    """Check shares of labels, and kinds of communities; raises `SettingsError`.

    `memberships` has the memberships table of every graph, None if there is none.
    """
    for share in plan.label_shares:
        if not 0 < share < 1:
            raise SettingsError(
                f"--label-shares: a share of {share:g} leaves no label to fit to or no "
                "node to estimate: give shares between 0 and 1"
            )
    if "given" in plan.kinds and not any(memberships):
        raise SettingsError(
            "--communities given: no folder of --data has a memberships.parquet: add "
            "one with the columns community and node_id, or remove given"
        )


def evaluate_communities(
    client: Client, work: EvaluationWork, plan: CasePlan, progress: Progress = silent
) -> dict[str, pa.Table]:
    """Apply every estimator to every kind of communities in every case.

    This process must hold all edges and N x C posteriors. Nodes without a known class
    are in the graph but in no community, because estimates for them cannot be checked.

    Returns
    -------
    dict
        The table ``community_results``.

    Raises
    ------
    InputError
        When there are too few labels, or no community is large enough.
    """
    task, adjacency = work.task(), work.adjacency()
    defined_quantifiers(plan.quantifiers, task.n_classes)  # before any estimate
    adjacency.sort_indices()
    groups = tuple(
        leiden(adjacency, resolution, work.settings.seed, quick=True)
        for resolution in (GROUP_RESOLUTION, FINE)
    )
    pool = LabelPool(task.labels, task.n_classes, groups[0], adjacency)
    kinds = {
        name: sets.only(pool.known)
        for name, sets in sets_of_kinds(work, plan.kinds, adjacency)
    }
    # Draws are outermost: all cases of a draw share its reservoir.
    cases = [*product(range(plan.draws), plan.designs, plan.label_shares)]
    rows = []
    for number, (draw, design, share) in enumerate(cases):
        seed = work.settings.seed + draw
        labels = draw_labels(design, pool, share, seed)
        case = kept_case(client, work, labels, groups[0], seed)
        rivals = _rivals(work, labels, seed)
        declared = {"drawn": DESIGNS[design].drawn}
        of_labels = work.settings.labels.model_copy(update=declared)
        changes = {"method": "xnq+", "seed": seed, "labels": of_labels}
        settings = work.settings.model_copy(update=changes)
        estimate = estimators_of(
            case, adjacency, groups, settings, plan.quantifiers, rivals
        )
        sets = dict(kinds)
        if design == "random":
            among = (labels < 0, SAMPLE), (pool.known, MIN_SIZE)
            for kind, drawn in zip(SAMPLES, among, strict=True):
                if kind in plan.kinds:
                    sets[kind] = draw_samples_by_class(
                        task.labels, task.n_classes, *drawn, seed
                    )
        of_case = {
            "dataset": task.dataset,
            "graph_family": family_of(task.dataset),
            "method": "xnq+",
            "design": design,
            "label_share": share,
            "draw": draw,
            "labels": int(np.count_nonzero(labels >= 0)),
        }
        rows += [of_case | row for row in score_case(case, sets, estimate)]
        progress("cases", number + 1, len(cases))
    if not rows:
        raise InputError(
            f"{task.dataset}: no community has enough unlabelled members with a known "
            "class: give larger communities, or a lower --label-shares"
        )
    name = "community_results"
    return {name: pa.Table.from_pylist(rows, arrow_schema(name))}


def _kept(
    what: str,
    work: EvaluationWork,
    labels: Ints32,
    seed: int,
    make: Callable[[], dict[str, NDArray[Any]]],
) -> dict[str, NDArray[Any]]:
    """Arrays that depend on the shown labels and the seed, which a folder keeps."""
    key = fingerprint(
        [STAGES[name].format for name in ("embeddings", "readout", "posteriors")],
        work.graph().fingerprint,
        work.task().classes,
        labels.tobytes().hex(),
        seed,
        work.settings.model_dump(include=MATTER, mode="json"),
    )
    return keep_arrays(work.folder("cases"), f"{what}-{key}", make)


def _rivals(work: EvaluationWork, labels: Ints32, seed: int) -> dict[str, Floats]:
    """Log-probabilities of the rivals in one draw."""

    def make() -> dict[str, NDArray[Any]]:
        features = NodeRows(work).matrix()
        fixed = features, labels, work.task().n_classes, seed
        with_neighbours = rival_scores(*fixed, work.adjacency())
        return {"boosting": with_neighbours, "features": rival_scores(*fixed)}

    return _kept("rivals", work, labels, seed, make)


def kept_case(
    client: Client,
    work: EvaluationWork,
    labels: Ints32,
    groups: Ints,
    seed: int,
) -> Case:
    """The case of one draw; a folder keeps its posteriors in single precision.

    They are calibrated posteriors of xnq+ from the shown labels, out of fold for these.
    If there are enough groups, there are also those of the labelled nodes by models
    fitted without any label of their group.

    Parameters
    ----------
    labels
        Class codes, -1 if not shown, shape (N,).
    groups
        Leiden community of every node, shape (N,).
    """
    task, held = work.task(), None

    def make() -> dict[str, NDArray[Any]]:
        each = groups.astype(np.int32)
        scores, _ = plus_posteriors(client, work, labels, seed, each)
        known, kind = labels >= 0, work.settings.readout.calibration
        calibration = fit_calibration(
            kind, scores.own[known], labels[known], PRIOR_ROWS
        )
        made: dict[str, NDArray[Any]] = {
            "posteriors": calibration.apply(scores.logits),
            "own": calibration.apply(scores.own),
        }
        if scores.by_group is not None:
            made["held_index"], made["held"] = scores.by_group
        return made

    arrays = _kept("posteriors", work, labels, seed, make)
    if "held" in arrays:
        held = Held(arrays["held_index"], arrays["held"])
    posteriors = arrays["posteriors"], arrays["own"]
    return Case.of(task.labels, labels, *posteriors, task.classes, held)


def sets_of_kinds(
    work: EvaluationWork, kinds: Sequence[str], adjacency: csr_array[Any]
) -> Iterator[tuple[str, Communities]]:
    """Communities that are the same in every case, with the name of their kind."""
    seed = work.settings.seed
    for name in kinds:
        if name in REGIONS:
            yield from draw_regions(name, adjacency, seed).items()
        elif name == "given" and work.source.memberships is not None:
            yield from _given(work, work.source.memberships).items()
        elif name == "attribute":
            yield name, draw_attributes(NodeRows(work).matrix(), seed)


def _given(work: EvaluationWork, path: str) -> dict[str, Communities]:
    """Communities of a memberships table, by kind."""
    from xnq_dist.core.leftovers import scratch_folder

    ids = layout.load_ids(work.graph())
    table = open_table(path, "memberships table", work.settings.input)
    with scratch_folder(work.settings.scratch) as scratch:
        communities = from_memberships(table, ids, work.settings, scratch)
        names = [str(name) for name in communities.names.to_pylist()]
        sets = [
            members
            for chunk in communities.sorter.chunks()
            for members in np.split(chunk.indices, chunk.indptr[1:-1])
        ]
    return by_kind(names, sets)
