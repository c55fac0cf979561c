"""The evaluation on communities: cases, resumable, and their figures as one table.

One case is one way to show labels (share, draw, in all communities or in half of
them): posteriors by `xnq+` from those labels alone, then every estimator on every
family. Every draw has a reservoir of its own, so that what is held of the intervals is
held of the seed's uncertainty too. A case that is in the folder is not done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xnq_dist import schemas
from xnq_dist.errors import InputError, SettingsError
from xnq_dist.evaluation.real import (
    ESTIMATORS,
    SPREADS,
    Case,
    draw_labels,
    draw_samples_by_class,
    half_of,
    score_case,
)
from xnq_dist.evaluation.regions import FAMILIES, REGIONS, draw_regions
from xnq_dist.evaluation.work import Work
from xnq_dist.graph import layout
from xnq_dist.graph.tables import open_table
from xnq_dist.inputs import set_scales
from xnq_dist.progress import Progress, silent
from xnq_dist.quantify.communities import cut_batches, from_memberships
from xnq_dist.quantify.interface import Communities
from xnq_dist.quantify.leiden import leiden
from xnq_dist.quantify.own_groups import RESOLUTION
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.store import Folder, RunDirectory, fingerprint

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Plan", "check_families", "check_shares", "evaluate_communities"]


@dataclass(frozen=True)
class Plan:
    """What is wanted of an evaluation on communities."""

    families: tuple[str, ...]
    """Of `regions.FAMILIES`."""
    label_shares: tuple[float, ...]
    quantifiers: tuple[str, ...] | None = None
    """Of `real.ESTIMATORS`; None: all."""
    memberships: str | None = None
    """Table of the family ``given``."""

    def cases(self, draws: int) -> list[tuple[str, float, int]]:
        """Where labels are, their share, number of the draw."""
        # Draws outermost: a reservoir serves all of its draw's cases.
        return [
            (spread, share, draw)
            for draw in range(draws)
            for spread in SPREADS
            for share in self.label_shares
        ]


def check_families(
    names: Sequence[str], memberships: str | None, quantifiers: Sequence[str] | None
) -> None:
    """Refuse communities or quantifiers that there are not.

    Raises
    ------
    SettingsError
        Naming the first.
    """
    for name in names:
        if name not in FAMILIES:
            raise SettingsError(
                f"--communities: there are no communities {name!r}: choose of "
                f"{', '.join(FAMILIES)}"
            )
    if "given" in names and memberships is None:
        raise SettingsError(
            "--communities given: no folder of --data has a memberships.parquet; put "
            "one there (community, node_id), or leave given out"
        )
    for name in quantifiers or ():
        if name not in ESTIMATORS:
            raise SettingsError(
                f"there is no quantifier {name!r}: choose of {', '.join(ESTIMATORS)}"
            )


def check_shares(label_shares: Sequence[float]) -> None:
    """Refuse label shares that cannot be.

    Raises
    ------
    SettingsError
        Naming the first.
    """
    for share in label_shares:
        if not 0 < share < 1:
            raise SettingsError(
                f"a label share of {share:g} leaves nothing to show or nothing to "
                "estimate: give shares between 0 and 1"
            )


def evaluate_communities(
    client: Client, work: Work, plan: Plan, progress: Progress = silent
) -> pa.Table:
    """Every estimator on every family in every case (schema ``community_results``).

    Needs all edges in this process, and N x C posteriors.

    Raises
    ------
    InputError
        When there are too few labels, or no community is large enough.
    SettingsError
        For a label share that cannot be.
    """
    check_shares(plan.label_shares)
    settings = work.settings.model_copy(update={"method": "xnq+"})
    task = work.task()
    stage, manifest = work.graph()
    adjacency = layout.read_adjacency(stage, manifest)
    adjacency.sort_indices()
    own = leiden(adjacency, RESOLUTION, settings.seed)
    families: dict[str, Communities] = {}
    for name in plan.families:
        if name in REGIONS:
            families |= draw_regions(name, adjacency, settings.seed)
        elif name == "given":
            families[name] = _given(work, str(plan.memberships))
    cases = plan.cases(settings.evaluation.label_draws)
    folder = Folder.of(work.run).child("cases")
    folder.create()
    tables = []
    for number, (spread, share, draw) in enumerate(cases):
        key = fingerprint(
            manifest.fingerprint,
            task.dataset,
            task.classes,
            [spread, share, draw, "own reservoir"],
            plan.families,
            plan.quantifiers or ESTIMATORS,
            plan.memberships,
            settings.model_dump(exclude={"cluster", "scratch", "input"}, mode="json"),
        )
        name = f"case-{key}.parquet"
        if not folder.exists(name):
            seed = settings.seed + draw
            allowed = np.ones(len(task.labels), np.bool_)
            if spread == "half":
                allowed = half_of(own, seed)
            classes = len(task.classes)
            shown = draw_labels(task.labels, classes, share, allowed, seed)
            posteriors = _posteriors(client, work, shown, seed)
            case = Case.of(task.labels, shown, posteriors, task.classes)
            sets = dict(families)
            if spread == "all":
                for family, among in (("app", 0), ("app+labels", 25)):
                    if family in plan.families:
                        sets[family] = draw_samples_by_class(case, among, seed)
            rows = score_case(
                case, sets, adjacency, own, settings, plan.quantifiers, spread == "half"
            )
            found = [
                {
                    "dataset": task.dataset,
                    "method": "xnq+",
                    "labels": spread,
                    "label_share": share,
                    "draw": draw,
                    **vars(row),
                }
                for row in rows
            ]
            sink = pa.BufferOutputStream()
            pq.write_table(_table(found), sink, compression="zstd")
            folder.write_bytes(name, sink.getvalue().to_pybytes())
        with folder.open_input(name) as stream:
            table = pq.read_table(stream)
        schemas.check(table.schema, "community_results", f"{folder.uri}/{name}")
        tables.append(table)
        progress("cases", number + 1, len(cases))
    whole = pa.concat_tables(tables)
    if not whole.num_rows:
        raise InputError(
            f"{task.dataset}: no community has 20 unlabelled members with a known "
            "class: nothing can be judged"
        )
    return whole


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {"double": pa.float64(), "int32": pa.int32(), "string": pa.string()}
    columns = schemas.TABLES["community_results"].columns
    schema = pa.schema([(column.name, kinds[column.kind]) for column in columns])
    return pa.Table.from_pylist(rows, schema)


def _given(work: Work, path: str) -> Communities:
    """Communities of a memberships table."""
    from xnq_dist.graph.scratch import scratch_folder

    stage, manifest = work.graph()
    ids = layout.load_ids(stage, manifest)
    table = open_table(path, "memberships table")
    with (
        scratch_folder(work.settings.scratch) as scratch,
        from_memberships(table, ids, work.settings, Path(scratch)) as found,
    ):
        parts = [batch for _, batch in cut_batches(found.chunks(), 1 << 22)]
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Communities(offsets, np.concatenate([part.members for part in parts]))


def _posteriors(
    client: Client, work: Work, shown: NDArray[np.int32], seed: int
) -> NDArray[np.float64]:
    """Calibrated posteriors by xnq+ from the labels shown, theirs out of fold."""
    from xnq_dist.readout.plus import plus_scores
    from xnq_dist.reservoir.embed import embed_scaled

    settings = work.settings.model_copy(update={"method": "xnq+", "seed": seed})
    stage, manifest = work.graph()
    run = RunDirectory(work.run)
    scales, inputs = set_scales(settings)
    embedded = embed_scaled(run, settings, client, scales, inputs)
    with work.attempt("communities") as attempt:
        found = plus_scores(
            client,
            stage,
            manifest,
            run.stage("embeddings"),
            embedded,
            shown,
            work.task().classes,
            settings,
            attempt,
        )
    calibration = fit_calibration(
        settings.readout.calibration, found.held_logits, shown[found.held]
    )
    logits = found.logits.astype(np.float64)
    logits[found.held] = found.held_logits
    return np.asarray(calibration.apply(logits), np.float64)
