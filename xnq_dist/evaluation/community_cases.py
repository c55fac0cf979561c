"""The evaluation on communities: resumable cases, and their results as one table.

A case is a design, a share and a draw of labels: `xnq+` computes posteriors from these
labels alone, and every estimator is then applied to every kind of communities. Every
draw has another reservoir, so that the coverage of the intervals includes the
uncertainty from the seed. Posteriors and results of a case that are in the folder are
reused: another estimator needs no new fit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.arrays import offsets_of
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.quantifiers import records
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import Folder, fingerprint
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.designs import (
    DESIGNS,
    GROUP_RESOLUTION,
    LabelPool,
    Shown,
    draw_labels,
)
from xnq_dist.evaluation.estimators import TRIVIAL, Estimators
from xnq_dist.evaluation.keep import arrow_schema, read_parquet, write_parquet
from xnq_dist.evaluation.methods.embedded import plus_posteriors
from xnq_dist.evaluation.real import score_case
from xnq_dist.evaluation.regions import (
    KINDS,
    MIN_SIZE,
    REGIONS,
    SAMPLE,
    SAMPLES,
    by_kind,
    draw_attributes,
    draw_regions,
    draw_samples_by_class,
    only,
)
from xnq_dist.evaluation.rivals import RIVALS, rival_scores
from xnq_dist.evaluation.split_fit import NodeRows
from xnq_dist.evaluation.work import EvaluationWork, keep_arrays
from xnq_dist.graph import layout
from xnq_dist.graph.tables import open_table
from xnq_dist.groups.leiden import leiden
from xnq_dist.groups.own_groups import FINE
from xnq_dist.quantify.communities import community_batches, from_memberships
from xnq_dist.quantify.default.estimator_fit import Held
from xnq_dist.quantify.interface import Communities
from xnq_dist.readout.calibration import fit_calibration

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

log = logging.getLogger(__name__)

TABLE = "community_results"
MATTER = {"backend", "reservoir", "exchange", "readout"}
"""Settings that posteriors depend on."""


@dataclass(frozen=True)
class CasePlan:
    """Settings of an evaluation on communities."""

    kinds: tuple[str, ...]
    """Names in `regions.KINDS`."""
    label_shares: tuple[float, ...]
    designs: tuple[str, ...] = ("random", "half")
    """Names in `designs.DESIGNS`."""
    quantifiers: tuple[str, ...] | None = None
    """Names of quantifiers; None: all."""
    memberships: str | None = None
    """Memberships table for the kind ``given``; None: this graph has none."""
    graph_family: str | None = None
    """Name of a group of similar graphs; None: this graph only."""
    draws: int = 3
    """Number of random draws of the labelled nodes."""

    def cases(self) -> list[tuple[str, float, int]]:
        """Design, share of the labels and number of the draw of every case."""
        # Draws are outermost: all cases of a draw share its reservoir.
        return [
            (design, share, draw)
            for draw in range(self.draws)
            for design in self.designs
            for share in self.label_shares
        ]


def check_plan(
    kinds: Sequence[str],
    designs: Sequence[str],
    quantifiers: Sequence[str] | None,
    label_shares: Sequence[float],
    memberships: Sequence[str | None],
) -> None:
    """Check names, and shares of labels; raises `SettingsError`.

    `memberships` has the memberships table of every graph, None if there is none.
    """
    for option, what, names, known in (
        ("--communities", "kind of communities", kinds, KINDS),
        ("--designs", "design of labels", designs, DESIGNS),
        ("--quantifiers", "quantifier", quantifiers or (), records()),
    ):
        for name in names:
            if name not in known:
                raise SettingsError(
                    f"{option}: unknown {what} {name!r}: choose from {', '.join(known)}"
                )
    for share in label_shares:
        if not 0 < share < 1:
            raise SettingsError(
                f"--label-shares: a share of {share:g} leaves no label to fit to or no "
                "node to estimate: give shares between 0 and 1"
            )
    if "given" in kinds and not any(memberships):
        raise SettingsError(
            "--communities given: no folder of --data has a memberships.parquet: add "
            "one with the columns community and node_id, or remove given"
        )


def evaluate_communities(
    client: Client, work: EvaluationWork, plan: CasePlan, progress: Progress = silent
) -> pa.Table:
    """Apply every estimator to every kind of communities in every case.

    This process must hold all edges and N x C posteriors. Nodes without a known class
    are in the graph but in no community, because estimates for them cannot be checked.

    Returns
    -------
    pa.Table
        Schema ``community_results``.

    Raises
    ------
    InputError
        When there are too few labels, or no community is large enough.
    """
    task = work.task()
    adjacency = layout.read_adjacency(*work.graph())
    adjacency.sort_indices()
    groups = tuple(
        leiden(adjacency, resolution, work.settings.seed, quick=True)
        for resolution in (GROUP_RESOLUTION, FINE)
    )
    pool = LabelPool(task.labels, len(task.classes), groups[0], adjacency)
    kinds = {
        name: only(sets, pool.known)
        for name, sets in sets_of_kinds(work, plan, adjacency)
    }
    made = _Cases(client, work, plan, pool, groups, kinds)
    cases, tables = plan.cases(), []
    for number, case in enumerate(cases):
        tables.append(made.results(*case))
        progress("cases", number + 1, len(cases))
    results = pa.concat_tables(tables)
    if not results.num_rows:
        raise InputError(
            f"{task.dataset}: no community has enough unlabelled members with a known "
            "class: give larger communities, or a lower --label-shares"
        )
    return results


@dataclass(frozen=True, eq=False)
class _Cases:
    """What all cases of a graph share, and the folder of their files."""

    client: Client
    work: EvaluationWork
    plan: CasePlan
    pool: LabelPool
    groups: tuple[NDArray[np.int64], ...]
    """Leiden community of every node at two resolutions, shape (N,) each."""
    kinds: dict[str, Communities]

    @property
    def folder(self) -> Folder:
        """The folder of posteriors and results."""
        return Folder.of(self.work.run).child("cases")

    @cached_property
    def key(self) -> str:
        """Fingerprint of what results depend on in every case."""
        drawn = [
            (sets.offsets.tobytes().hex(), sets.members.tobytes().hex())
            for sets in self.kinds.values()
        ]
        return fingerprint(
            STAGES["quantify"].format,
            self.work.task().dataset,
            self.plan.kinds,
            fingerprint(list(self.kinds), drawn),
            [*(self.plan.quantifiers or records()), *TRIVIAL, *RIVALS],
            self.work.settings.model_dump(
                exclude={"cluster", "scratch", "input"}, mode="json"
            ),
        )

    def results(self, design: str, share: float, draw: int) -> pa.Table:
        """The rows of one case, which the folder keeps."""
        seed = self.work.settings.seed + draw
        shown = draw_labels(design, self.pool, share, seed)
        posteriors = _posteriors_key(self.work, shown, seed)
        key = fingerprint(self.key, posteriors, design, share, draw)
        name, folder = f"case-{key}.parquet", self.folder
        if not folder.exists(name):
            of_case = {
                "dataset": self.work.task().dataset,
                "graph_family": self.plan.graph_family or self.work.task().dataset,
                "method": "xnq+",
                "design": design,
                "label_share": share,
                "draw": draw,
                "labels": int(np.count_nonzero(shown.labels >= 0)),
            }
            scored = self._estimators(shown, seed)
            sets = self.kinds | self._samples(design, shown, seed)
            rows = score_case(scored.case, sets, scored)
            made = [of_case | vars(row) for row in rows]
            table = pa.Table.from_pylist(made, arrow_schema(TABLE))
            write_parquet(folder, name, table)
        return read_parquet(folder, name, TABLE)

    def _samples(self, design: str, shown: Shown, seed: int) -> dict[str, Communities]:
        """Samples drawn by class, if they are requested and labels are random."""
        task, kinds = self.work.task(), self.plan.kinds
        given = task.labels, len(task.classes)
        among = ((shown.labels < 0, SAMPLE), (task.labels >= 0, MIN_SIZE))
        return {
            kind: draw_samples_by_class(*given, *drawn, seed)
            for kind, drawn in zip(SAMPLES, among, strict=True)
            if kind in kinds and design == "random"
        }

    def _estimators(self, shown: Shown, seed: int) -> Estimators:
        """The estimators of one draw of the labels."""
        settings = self.work.settings.model_copy(
            update={"method": "xnq+", "seed": seed}
        )
        names, adjacency = self.plan.quantifiers, self.pool.adjacency
        case = kept_case(self.client, self.work, shown, self.groups[0], seed)
        rivals = self._rivals(shown.labels, seed)
        return Estimators(case, adjacency, self.groups, settings, names, rivals)

    def _rivals(
        self, labels: NDArray[np.int32], seed: int
    ) -> dict[str, NDArray[np.float64]]:
        """Log-probabilities of the rivals in one draw, which the folder keeps."""

        def make() -> dict[str, NDArray[Any]]:
            features = NodeRows(*self.work.graph()).matrix()
            fixed = labels, self.pool.n_classes, seed
            made = {"boosting": rival_scores(features, *fixed, self.pool.adjacency)}
            if features is not None:
                made["features"] = rival_scores(features, *fixed)
            return made

        graph = self.work.graph()[1].fingerprint
        key = fingerprint(graph, labels.tobytes().hex(), seed)
        return keep_arrays(self.folder, f"rivals-{key}", make)


def kept_case(
    client: Client,
    work: EvaluationWork,
    shown: Shown,
    groups: NDArray[np.int64],
    seed: int,
) -> Case:
    """The case of one draw; a folder keeps its posteriors in single precision.

    Parameters
    ----------
    groups
        Leiden community of every node, shape (N,): held-out scores are by models fitted
        without any label of the group.
    """
    task = work.task()
    arrays = keep_arrays(
        Folder.of(work.run).child("cases"),
        f"posteriors-{_posteriors_key(work, shown, seed)}",
        lambda: _posteriors(client, work, shown.labels, groups, seed),
    )
    held = None
    if "held" in arrays:
        index = arrays["held_index"]
        held = Held(index, shown.labels[index], arrays["held"].astype(np.float64))
    rows, own = (arrays[name].astype(np.float64) for name in ("posteriors", "own"))
    return Case.of(task.labels, shown, rows, own, task.classes, held)


def sets_of_kinds(
    work: EvaluationWork, plan: CasePlan, adjacency: csr_array[Any]
) -> Iterator[tuple[str, Communities]]:
    """Communities that are the same in every case, with the name of their kind."""
    seed, dataset = work.settings.seed, work.task().dataset
    for name in plan.kinds:
        if name in REGIONS:
            yield from draw_regions(name, adjacency, seed).items()
        elif name == "given":
            if plan.memberships is None:
                log.info(
                    "%s: no memberships.parquet; given communities are skipped", dataset
                )
            else:
                yield from _given(work, plan.memberships).items()
        elif name == "attribute":
            features = NodeRows(*work.graph()).matrix()
            if features is None:
                log.info("%s: no features; groups by attribute are skipped", dataset)
            else:
                yield name, draw_attributes(features, seed)


def _given(work: EvaluationWork, path: str) -> dict[str, Communities]:
    """Communities of a memberships table, by kind."""
    from xnq_dist.graph.scratch import scratch_folder

    stage, manifest = work.graph()
    ids = layout.load_ids(stage, manifest)
    table = open_table(path, "memberships table", work.settings.input)
    with (
        scratch_folder(work.settings.scratch) as scratch,
        from_memberships(table, ids, work.settings, Path(scratch)) as communities,
    ):
        names = [str(name) for name in communities.names.to_pylist()]
        parts = [batch for _, batch in community_batches(communities.sorter.chunks())]
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    offsets = offsets_of(sizes)
    members = np.concatenate([part.members for part in parts])
    return by_kind(names, Communities(offsets, members))


def _posteriors_key(work: EvaluationWork, shown: Shown, seed: int) -> str:
    return fingerprint(
        [
            STAGES["embeddings"].format,
            STAGES["readout"].format,
            STAGES["posteriors"].format,
        ],
        work.graph()[1].fingerprint,
        work.task().classes,
        shown.labels.tobytes().hex(),
        seed,
        work.settings.model_dump(include=MATTER, mode="json"),
    )


def _posteriors(
    client: Client,
    work: EvaluationWork,
    shown: NDArray[np.int32],
    groups: NDArray[np.int64],
    seed: int,
) -> dict[str, NDArray[Any]]:
    """Calibrated posteriors of xnq+ from the shown labels; out of fold for these.

    If there are enough groups, ``held`` has the scores of the labelled nodes
    ``held_index`` by models fitted without any label of their group.
    """
    from xnq_dist.readout.plus.learning import PRIOR_ROWS

    scores, _ = plus_posteriors(client, work, shown, seed, groups.astype(np.int32))
    own, labelled = scores.own.astype(np.float64), shown >= 0
    calibration = fit_calibration(
        work.settings.readout.calibration, own[labelled], shown[labelled], PRIOR_ROWS
    )
    logits = {"posteriors": scores.logits.astype(np.float64), "own": own}
    made: dict[str, NDArray[Any]] = {
        name: calibration.apply(values).astype(np.float32)
        for name, values in logits.items()
    }
    if scores.by_group is not None:
        index, held = scores.by_group
        made |= {"held_index": index, "held": held.astype(np.float32)}
    return made
