"""The demo: the pipeline on generated followers of pages, next to the plain answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from scipy import sparse
from threadpoolctl import threadpool_limits

from xnq_dist.app.output import elapsed, summary_lines
from xnq_dist.core.arrays import Bools, Floats
from xnq_dist.core.config import load_settings
from xnq_dist.core.store import read_published
from xnq_dist.evaluation.rivals import plain_features
from xnq_dist.graph.generate import demo_network
from xnq_dist.graph.sources import Sources
from xnq_dist.jobs import run_all
from xnq_dist.monitor.status import recorded
from xnq_dist.reservoir.context import matrix_of

__all__ = ["run_demo"]

SHOWN = "bot"
SETTINGS = {
    "labels": {"drawn": "random"},
    "report": {
        "class": SHOWN,
        "class_names": {"bot": "bots", "human": "humans"},
        "community": "page",
        "node": "user",
    },
}
"""What a user knows of these tables; everything else has its default."""
RUN = "this run"
PLAIN = "mean score of gradient boosting"
LABELLED = "share of the labelled users"
Z = 1.96
"""Half the width of a 95 % interval in standard errors."""


def run_demo(out: str, seed: int = 0) -> tuple[str, dict[str, Any]]:
    """Generate followers of pages, run the pipeline, compare with the truth.

    Returns
    -------
    A text for a reader, and the summary of the run with ``compared``: mean error and
    coverage by estimator.
    """
    folder = Path(out)
    paths = demo_network(folder / "input", seed)
    chosen, run = folder / "input" / "settings.yaml", str(folder / "run")
    text = yaml.safe_dump({"seed": seed, **SETTINGS}, sort_keys=False)
    chosen.write_text(text, encoding="utf-8")
    sources = Sources(paths["nodes"], paths["edges"], paths["memberships"])
    with recorded(run):
        summary = run_all(sources, run, load_settings([chosen]))
    summary["compared"] = _compared(summary["run"], paths)
    summary["seconds"] = elapsed()
    return "\n".join([*summary_lines(summary), *_table(summary)]), summary


def _compared(run: str, paths: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Mean error and coverage of the run, of the plain answer, and of the labels."""
    nodes, truth = pq.read_table(paths["nodes"]), pq.read_table(paths["truth"])
    is_shown = np.asarray(pc.equal(truth["label"], SHOWN), np.float64)
    known = np.asarray(pc.is_valid(nodes["label"]), np.bool_)
    score = _scores(nodes, pq.read_table(paths["edges"]), is_shown, known)
    users = pa.table({"node_id": nodes["node_id"], "truth": is_shown, "score": score})
    members = pq.read_table(paths["memberships"]).join(users, "node_id")
    pages = members.group_by("community").aggregate(
        [("truth", "mean"), ("score", "mean"), ("score", "count")]
    )
    published = read_published(run).read("prevalence")
    shown = published.filter(pc.equal(published["class"], SHOWN))
    pages = pages.join(shown, "community")
    columns = ("truth_mean", "score_mean", "score_count")
    share, mean, sizes = (np.asarray(pages[name]) for name in columns)
    half = Z * np.sqrt(mean * (1 - mean) / sizes)
    of_run = (np.asarray(pages[name]) for name in ("prevalence", "lower", "upper"))
    return {
        RUN: _judged(share, *of_run),
        PLAIN: _judged(share, mean, mean - half, mean + half),
        LABELLED: _judged(share, is_shown[known].mean()),
    }


def _judged(
    truth: Floats, share: Any, lower: Any = None, upper: Any = None
) -> dict[str, Any]:
    """Mean absolute error, and how many intervals contain the truth."""
    covered = None
    if lower is not None:
        covered = int(np.count_nonzero((lower <= truth) & (truth <= upper)))
    error = round(float(np.mean(np.abs(share - truth))), 4)
    return {"error": error, "covered": covered}


def _scores(nodes: pa.Table, edges: pa.Table, is_shown: Floats, known: Bools) -> Floats:
    """Known classes, and scores of a boosting on features and neighbours' means."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    n = nodes.num_rows
    src, dst = (pc.index_in(edges[end], nodes["node_id"]) for end in ("src", "dst"))
    one_way = sparse.coo_array((np.ones(len(src)), (src, dst)), shape=(n, n))
    both = (one_way + one_way.T).tocsr()
    features = plain_features(matrix_of(nodes["features"]), both, hops=1)
    model = HistGradientBoostingClassifier(random_state=0)
    # One thread: on a busy machine OpenMP's threads wait for each other in each tree.
    with threadpool_limits(1, "openmp"):
        model.fit(features[known], is_shown[known])
        return np.where(known, is_shown, model.predict_proba(features)[:, 1])


def _table(summary: dict[str, Any]) -> list[str]:
    """The comparison with the truth, as lines of text."""
    number = summary["communities"]
    head = f"against the truth of the {number} pages"
    lines = ["", f"{head:<36}{'mean error':>12}{'95 % intervals with the truth':>32}"]
    for name, row in summary["compared"].items():
        covered = "" if row["covered"] is None else f"{row['covered']} of {number}"
        error = f"{100 * row['error']:.1f} points"
        lines.append(f"{name:<36}{error:>12}{covered:>32}".rstrip())
    return lines
