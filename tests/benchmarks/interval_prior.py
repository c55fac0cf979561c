"""Choice of the prior of spreads between groups, by leaving out families of graphs.

    python tests/benchmarks/interval_prior.py OUT FOLDER [FOLDER ...]
        [--values .4,.8,1.6,100] [--settings KEY=VALUE ...]

OUT is the output of `xnq-dist evaluate --communities ... --designs random` for the
graphs in the FOLDERs (with default shares and `seed`). Posteriors are read from it, and
the intervals of `auto` are computed with every value of `estimator_fit.PRIOR_SPREAD`.
For every family, the smallest value is chosen with which intervals of communities with
at least 20 unlabelled members have a coverage of .94 at every share of labels on the
*other* families; its coverage on the family left out is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from distributed import Client

from xnq_dist.core.config import load_settings
from xnq_dist.evaluation.community_cases import CasePlan, kept_case, sets_of_kinds
from xnq_dist.evaluation.datasets import family_of
from xnq_dist.evaluation.designs import GROUP_RESOLUTION, LabelPool, draw_labels
from xnq_dist.evaluation.real import true_counts
from xnq_dist.evaluation.task import EvaluationWork, TaskSource
from xnq_dist.graph import layout
from xnq_dist.groups.leiden import leiden
from xnq_dist.groups.own_groups import FINE, Groups, degree_groups
from xnq_dist.quantify.default import estimator_fit
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.estimator_fit import Learnt

SHARES = (0.6, 0.06, 0.012)
KINDS = ("leiden", "bfs", "walk", "followers", "random", "whole", "unions", "attribute")
LEAST = 20
COVERED = 0.94


@dataclass(frozen=True)
class Found:
    """Intervals of one draw."""

    family: str
    value: float
    share: float
    sets: int
    held: float
    width: float


def intervals(
    client: Client, out: Path, folder: Path, values: list[float], overrides: list[str]
) -> Iterator[Found]:
    """Every draw; posteriors that the folder lacks are made."""
    settings = load_settings(overrides=["method=xnq+", *overrides])
    where = str(out / folder.name)
    given = folder / "memberships.parquet"
    source = TaskSource(folder.name, memberships=str(given))
    work = EvaluationWork(where, source, settings)
    task = work.task()
    adjacency = layout.read_adjacency(work.graph())
    adjacency.sort_indices()
    own = [leiden(adjacency, each, settings.seed) for each in (GROUP_RESOLUTION, FINE)]
    by_links = tuple(groups.astype(np.int32) for groups in own)
    groups = Groups(by_links, degree_groups(np.diff(adjacency.indptr))).stacked
    pool = LabelPool(task.labels, len(task.classes), own[0], adjacency)
    kinds = (*KINDS, "given") if given.exists() else KINDS
    sets = [each.only(pool.known) for _, each in sets_of_kinds(work, kinds, adjacency)]
    for draw in range(CasePlan.draws):
        for share in SHARES:
            shown = draw_labels("random", pool, share, settings.seed + draw)
            case = kept_case(client, work, shown, own[0], settings.seed + draw)
            for value in values:
                estimator_fit.PRIOR_SPREAD = value
                learnt = Learnt.of(case.nodes, groups, case.held)
                for batch in sets:
                    counts, _ = true_counts(case, batch)
                    size = counts.sum(axis=1)
                    some = size >= LEAST
                    found = Auto(learnt=learnt).estimate(batch, case.nodes)
                    truth = counts[some] / size[some, None]
                    low, high = found.lower[some], found.upper[some]
                    inside = (truth >= low - 1e-9) & (truth <= high + 1e-9)
                    yield Found(
                        family_of(folder.name),
                        value,
                        share,
                        int(some.sum()),
                        float(inside.mean(axis=1).sum()),
                        float((high - low).mean(axis=1).sum()),
                    )


def covered(rows: list[Found], value: float, share: float) -> tuple[float, float]:
    """Coverage and mean width of some draws' intervals."""
    some = [row for row in rows if (row.value, row.share) == (value, share)]
    sets = sum(row.sets for row in some)
    return sum(row.held for row in some) / sets, sum(row.width for row in some) / sets


def main() -> None:
    """Choose without each family, judge on it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--values", default=".4,.8,1.6,100")
    parser.add_argument("--settings", nargs="*", default=[])
    given = parser.parse_args()
    values = [float(value) for value in given.values.split(",")]
    one = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with Client(processes=False, **one) as client:
        rows = [
            row
            for folder in given.folders
            for row in intervals(client, given.out, folder, values, given.settings)
        ]
    for family in sorted({row.family for row in rows}):
        others = [row for row in rows if row.family != family]
        own = [row for row in rows if row.family == family]
        enough = [
            value
            for value in values
            if min(covered(others, value, share)[0] for share in SHARES) >= COVERED
        ]
        chosen = min(enough, default=max(values))
        figures = [covered(own, chosen, share) for share in SHARES]
        text = ", ".join(f"{held:.3f} ({width:.3f})" for held, width in figures)
        sys.stdout.write(f"{family}: {chosen:g} chosen on the others; covers {text}\n")


if __name__ == "__main__":
    main()
