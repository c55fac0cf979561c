"""Error and coverage of the plain answer, GROUP BY avg(score), on real communities.

    XNQ_DATA_DIR=... python tests/benchmarks/plain_answer.py cora-2 cora-multi tolokers

Scores are those of a gradient boosting on features, neighbours' mean features, degree.
A community's estimate is the mean score of its unlabelled members; its naive interval
is 1.96 binomial standard errors on either side. Communities, labels, truth and means
are those of `xnq-dist evaluate --communities`: `prior` must have the same error there.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from xnq_dist.app.evaluate import _prepare_task, _with_features, find_data
from xnq_dist.core.config import load_settings
from xnq_dist.core.progress import silent
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.cells import means, sized
from xnq_dist.evaluation.community_cases import CasePlan, _kinds
from xnq_dist.evaluation.designs import GROUP_RESOLUTION, LabelPool, draw_labels
from xnq_dist.evaluation.keep import arrow_schema
from xnq_dist.evaluation.real import score_case
from xnq_dist.evaluation.regions import REGIONS, only
from xnq_dist.evaluation.split_fit import FeatureRows
from xnq_dist.graph import layout
from xnq_dist.groups.leiden import leiden
from xnq_dist.quantify.interface import Communities, Estimates

DRAWS = {0.6: 3, 0.06: 10, 0.012: 10}  # of the labels, by their share
KINDS = (*REGIONS, "attribute", "given")


class PlainAnswer:
    """Estimators of one case, whose posteriors are the scores."""

    def __init__(self, case: Case, settings: Settings) -> None:
        self.case, self.settings = case, settings

    def estimates(self, sets: Communities, _: bool) -> Iterator[tuple[str, Any]]:
        """Estimates for the unlabelled members: mean scores, shares of the labels."""
        nodes = self.case.nodes
        free = only(sets, nodes.labels < 0)
        size = np.diff(free.offsets)
        community = np.repeat(np.arange(len(sets)), size)
        scores = nodes.posteriors[free.members].T.astype(np.float64)
        sums = [np.bincount(community, each, len(sets)) for each in scores]
        divisor = np.maximum(size, 1)[:, None]
        mean = np.stack(sums, axis=1) / divisor
        half = 1.96 * np.sqrt(mean * (1 - mean) / divisor)
        done = np.zeros(len(sets), np.int32), np.ones(len(sets), np.bool_)
        yield "plain", Estimates(mean, *done, mean - half, mean + half)
        yield "prior", np.tile(self.case.reference.prior, (len(sets), 1))


def scores_of(x: np.ndarray, labels: np.ndarray, n_classes: int) -> np.ndarray:
    """Scores of all nodes, shape (N, C); 0 for classes without a label."""
    model, labelled = HistGradientBoostingClassifier(random_state=0), labels >= 0
    scores = np.zeros((len(x), n_classes))
    # One thread: on a busy machine OpenMP's threads wait for each other in each tree.
    with threadpool_limits(1, "openmp"):
        model.fit(x[labelled], labels[labelled])
        scores[:, model.classes_] = model.predict_proba(x)
    return scores


def results(data: str, made: str) -> Iterator[dict[str, Any]]:
    """Rows of the table ``community_results``; `made` is an empty folder."""
    source = find_data(data, None, None)
    settings, _ = _with_features(source, load_settings(overrides=["method=xnq+"]))
    work = _prepare_task(made, source, settings, None, [1.0], silent)
    task, adjacency = work.task(), layout.read_adjacency(*work.graph())
    adjacency.sort_indices()
    groups = leiden(adjacency, GROUP_RESOLUTION, settings.seed)
    pool = LabelPool(task.labels, len(task.classes), groups, adjacency)
    index, parts = zip(*FeatureRows(*work.graph()).parts(), strict=True)
    own = np.concatenate(parts)[np.argsort(np.concatenate(index))]
    degree = np.asarray(adjacency.sum(axis=1)).reshape(-1, 1)
    x = np.hstack([own, adjacency @ own / np.maximum(degree, 1), degree])
    given = Path(source.nodes).with_name("memberships.parquet")
    memberships = str(given) if given.exists() else None
    plan = CasePlan(KINDS, tuple(DRAWS), ("random",), memberships=memberships)
    kinds = {name: only(s, pool.known) for name, s in _kinds(work, plan, adjacency)}
    cases = plan.cases(max(DRAWS.values()))
    for design, share, draw in (case for case in cases if case[2] < DRAWS[case[1]]):
        shown = draw_labels(design, pool, share, settings.seed + draw)
        scores = scores_of(x, shown.labels, len(task.classes))
        case = Case.of(task.labels, shown, scores, task.classes)
        of_task = {"dataset": source.name, "graph_family": source.family}
        for row in score_case(case, kinds, PlainAnswer(case, settings)):
            yield {**of_task, "design": design, "label_share": share, **vars(row)}


def show(rows: list[dict[str, Any]], by: str) -> None:
    """Print errors and coverage by share of labels for every value of a column."""
    table = sized(pa.Table.from_pylist(rows, arrow_schema("community_results")))
    for row in means(table, (by, "label_share", "estimator")):
        text = f"{row[by]:28}{row['label_share']:6} {row['estimator']} {row['ae']:.4f}"
        text += "" if row["coverage"] is None else f" covered {row['coverage']:.3f}"
        sys.stdout.write(f"{text} ({row['sets']} communities)\n")


if __name__ == "__main__":
    every: list[dict[str, Any]] = []
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            every += (of_task := list(results(name, folder)))
        show(of_task, "dataset")
    show(every, "graph_family")
    show(every, "design")
