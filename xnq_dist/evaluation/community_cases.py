"""The evaluation on communities: resumable cases, and their results as one table.

A case is a design, a share and a draw of labels: `xnq+` computes posteriors from these
labels alone, and every estimator is then applied to every kind of communities. Every
draw has another reservoir, so that the coverage of the intervals includes the
uncertainty from the seed. Posteriors and results of a case that are in the folder are
reused: another estimator needs no new fit.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xnq_dist.core import npy, schemas
from xnq_dist.core.arrays import offsets_of
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.inputs import set_scales
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.stages import STAGES
from xnq_dist.core.store import Folder, RunDirectory, fingerprint
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.designs import (
    DESIGNS,
    GROUP_RESOLUTION,
    LabelPool,
    Shown,
    draw_labels,
)
from xnq_dist.evaluation.estimators import TRIVIAL, Estimators, estimators
from xnq_dist.evaluation.keep import arrow_schema
from xnq_dist.evaluation.real import score_case
from xnq_dist.evaluation.regions import (
    KINDS,
    REGIONS,
    SAMPLES,
    by_kind,
    draw_attributes,
    draw_regions,
    draw_samples_by_class,
    only,
)
from xnq_dist.evaluation.rivals import RIVALS, rival_scores
from xnq_dist.evaluation.split_fit import FeatureRows
from xnq_dist.evaluation.work import EvaluationWork
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

__all__ = ["CasePlan", "check_plan", "check_shares", "evaluate_communities"]

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
    """Names in `estimators.estimators`; None: all."""
    memberships: str | None = None
    """Memberships table for the kind ``given``; None: this graph has none."""
    graph_family: str | None = None
    """Name of a group of similar graphs; None: this graph only."""
    undeclared: bool = False
    """Whether `labels.drawn` is unknown instead of the value that fits the design."""
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
    memberships: Sequence[str | None],
) -> None:
    """Check that communities, designs and quantifiers exist; raises `SettingsError`.

    `memberships` has the memberships table of every graph, None if there is none.
    """
    for option, what, names, known in (
        ("--communities", "kind of communities", kinds, KINDS),
        ("--designs", "design of labels", designs, DESIGNS),
        ("--quantifiers", "quantifier", quantifiers or (), estimators()),
    ):
        for name in names:
            if name not in known:
                raise SettingsError(
                    f"{option}: unknown {what} {name!r}: choose from {', '.join(known)}"
                )
    if "given" in kinds and not any(memberships):
        raise SettingsError(
            "--communities given: no folder of --data has a memberships.parquet: add "
            "one with the columns community and node_id, or remove given"
        )


def check_shares(label_shares: Sequence[float]) -> None:
    """Check that label shares are between 0 and 1; raises `SettingsError`."""
    for share in label_shares:
        if not 0 < share < 1:
            raise SettingsError(
                f"--label-shares: a share of {share:g} leaves no label to fit to or no "
                "node to estimate: give shares between 0 and 1"
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
    SettingsError
        When a label share is not between 0 and 1.
    """
    check_shares(plan.label_shares)
    settings = work.settings.model_copy(update={"method": "xnq+"})
    task = work.task()
    stage, manifest = work.graph()
    adjacency = layout.read_adjacency(stage, manifest)
    adjacency.sort_indices()
    groups = tuple(
        leiden(adjacency, resolution, settings.seed, quick=True)
        for resolution in (GROUP_RESOLUTION, FINE)
    )
    pool = LabelPool(task.labels, len(task.classes), groups[0], adjacency)
    kinds = {
        name: only(sets, pool.known) for name, sets in _kinds(work, plan, adjacency)
    }
    cases = plan.cases()
    folder = Folder.of(work.run).child("cases")
    folder.create()
    drawn = [
        (sets.offsets.tobytes().hex(), sets.members.tobytes().hex())
        for sets in kinds.values()
    ]
    common = fingerprint(
        STAGES["quantify"].format,
        task.dataset,
        plan.kinds,
        fingerprint(list(kinds), drawn),
        [*(plan.quantifiers or estimators()), *TRIVIAL, *RIVALS],
        plan.undeclared,
        settings.model_dump(exclude={"cluster", "scratch", "input"}, mode="json"),
    )
    tables = []
    for number, (design, share, draw) in enumerate(cases):
        seed = settings.seed + draw
        shown = draw_labels(design, pool, share, seed)
        if plan.undeclared:
            shown = replace(shown, drawn="unknown")
        key = fingerprint(
            common, _posteriors_key(work, shown, seed), design, share, draw
        )
        name = f"case-{key}.parquet"
        if not folder.exists(name):
            of_case = {
                "dataset": task.dataset,
                "graph_family": plan.graph_family or task.dataset,
                "method": "xnq+",
                "design": design,
                "label_share": share,
                "draw": draw,
                "labels": int(np.count_nonzero(shown.labels >= 0)),
            }
            sets = dict(kinds)
            for kind, among in SAMPLES.items():
                if kind in plan.kinds and design == "random":
                    sets[kind] = draw_samples_by_class(
                        task.labels, shown.labels, len(task.classes), among, seed
                    )
            with_edges = adjacency, groups, folder
            scored = _estimators(client, work, plan, shown, seed, *with_edges)
            rows = [
                of_case | vars(row) for row in score_case(scored.case, sets, scored)
            ]
            sink = pa.BufferOutputStream()
            table = pa.Table.from_pylist(rows, arrow_schema(TABLE))
            pq.write_table(table, sink, compression="zstd")
            folder.write_bytes(name, sink.getvalue().to_pybytes())
        with folder.open_input(name) as stream:
            table = pq.read_table(stream)
        schemas.check(table.schema, TABLE, folder.uri_of(name))
        tables.append(table)
        progress("cases", number + 1, len(cases))
    results = pa.concat_tables(tables)
    if not results.num_rows:
        raise InputError(
            f"{task.dataset}: no community has enough unlabelled members with a known "
            "class: give larger communities, or a lower --label-shares"
        )
    return results


def _estimators(
    client: Client,
    work: EvaluationWork,
    plan: CasePlan,
    shown: Shown,
    seed: int,
    adjacency: csr_array[Any],
    groups: tuple[NDArray[np.int64], ...],
    folder: Folder,
) -> Estimators:
    """The estimators of one draw of the labels."""
    case, refitted = _case(client, work, shown, groups[0], seed, folder), None
    if (shown.fitted != shown.labels).any():
        # `auto` uses a readout fitted to the new labels too.
        refit = replace(shown, fitted=shown.labels)
        refitted = _case(client, work, refit, groups[0], seed, folder)
    rivals = _rivals(work, shown.labels, adjacency, seed, folder)
    settings = work.settings.model_copy(update={"method": "xnq+", "seed": seed})
    return Estimators(
        case, adjacency, groups, settings, plan.quantifiers, refitted, rivals
    )


def _kept(
    folder: Folder, name: str, make: Callable[[], dict[str, NDArray[Any]]]
) -> dict[str, NDArray[Any]]:
    """Arrays of a file in the folder, which is made if it is not there."""
    if not folder.exists(name):
        buffer = io.BytesIO()
        npy.write_arrays(buffer, make())
        folder.write_bytes(name, buffer.getvalue())
    return dict(npy.read_arrays(io.BytesIO(folder.read_bytes(name))))


def _case(
    client: Client,
    work: EvaluationWork,
    shown: Shown,
    groups: NDArray[np.int64],
    seed: int,
    folder: Folder,
) -> Case:
    """The case of one draw; the folder keeps its posteriors in single precision."""
    name = f"posteriors-{_posteriors_key(work, shown, seed)}.npy"
    fitted = client, work, shown.fitted, groups, seed
    arrays = _kept(folder, name, lambda: _posteriors(*fitted))
    held = None
    if "held" in arrays:
        rows = arrays["held_index"]
        held = Held(rows, shown.labels[rows], arrays["held"].astype(np.float64))
    task = work.task()
    posteriors, own = (
        arrays[name].astype(np.float64) for name in ("posteriors", "own")
    )
    return Case.of(task.labels, shown, posteriors, own, task.classes, held)


def _rivals(
    work: EvaluationWork,
    labels: NDArray[np.int32],
    adjacency: csr_array[Any],
    seed: int,
    folder: Folder,
) -> dict[str, NDArray[np.float64]]:
    """Log-probabilities of the rivals in one draw, which the folder keeps."""

    def make() -> dict[str, NDArray[Any]]:
        features = FeatureRows(*work.graph()).matrix()
        fixed = labels, len(work.task().classes), seed
        made = {"boosting": rival_scores(features, *fixed, adjacency)}
        if features is not None:
            made["features"] = rival_scores(features, *fixed)
        return made

    key = fingerprint(work.graph()[1].fingerprint, labels.tobytes().hex(), seed)
    return _kept(folder, f"rivals-{key}.npy", make)


def _kinds(
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
            features = FeatureRows(*work.graph()).matrix()
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
        parts = [batch for _, batch in community_batches(communities.chunks(), 1 << 22)]
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
        shown.fitted.tobytes().hex(),
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
    from xnq_dist.readout.plus.learning import PRIOR_ROWS, plus_scores
    from xnq_dist.readout.work import Embedded
    from xnq_dist.reservoir.embed import embed_scaled

    settings = work.settings.model_copy(update={"method": "xnq+", "seed": seed})
    run = RunDirectory(work.run)
    scales, inputs = set_scales(settings)
    embedded = embed_scaled(run, settings, client, scales, inputs)
    with work.attempt("communities") as attempt:
        scores = plus_scores(
            client,
            Embedded(*work.graph(), run.stage("embeddings"), embedded),
            shown,
            work.task().classes,
            settings,
            attempt,
            groups=groups.astype(np.int32),
        )
    own, labelled = scores.own.astype(np.float64), shown >= 0
    calibration = fit_calibration(
        settings.readout.calibration, own[labelled], shown[labelled], PRIOR_ROWS
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
