"""Time of `auto` beside SLD: communities of about 100 nodes, one process, one thread.

    python tests/benchmarks/auto_speed.py [COMMUNITIES] [CLASSES]

Prints one JSON line: seconds of SLD, of what `auto` learns from (at most 5,000
communities), of its answers with intervals, and the ratio of the two together to SLD;
medians of three. Edges are not counted here: `graph` has none.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from xnq_dist.quantify.auto import Auto, Learnt
from xnq_dist.quantify.batches import MOST_LEARNT_FROM
from xnq_dist.quantify.cohesion import COUNTS, EdgeCounts, Mixing
from xnq_dist.quantify.hypotheses import learn_weights
from xnq_dist.quantify.interface import Communities, NodeTable, Reference
from xnq_dist.quantify.sld import Sld


def median_time(work: Callable[[], Any]) -> float:
    """Median of three, after one to warm up."""
    work()
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def main(communities: int = 100_000, classes: int = 2) -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    n_nodes = 10 * communities
    logits = rng.normal(0, 1.5, (n_nodes, classes))
    posteriors = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.where(rng.random(n_nodes) < 0.06, rng.integers(0, classes, n_nodes), -1)
    nodes = NodeTable(
        posteriors.astype(np.float32),
        labels.astype(np.int32),
        labels >= 0,
        tuple(map(str, range(classes))),
    )
    sizes = np.clip(rng.poisson(100, communities), 1, None)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    batch = Communities(offsets, rng.integers(0, n_nodes, offsets[-1]))
    known = labels >= 0
    reference = Reference(
        np.bincount(labels[known], minlength=classes) / known.sum(),
        posteriors=nodes.posteriors[known],
        labels=labels[known].astype(np.int32),
    )
    sld, auto = Sld(), Auto(Sld())
    once = np.ones(n_nodes, np.int32)
    every = -(-communities // MOST_LEARNT_FROM)

    def learn() -> Auto:
        found = auto.summarise(batch, nodes, reference, once, every, 0)
        weights = np.stack(
            [
                learn_weights(found.evidence[:, k], found.shares)
                for k in range(found.evidence.shape[1])
            ]
        )
        # Held together by edges: no community is answered by SLD alone.
        inside = np.zeros((communities, COUNTS), np.int64)
        inside[:, :5] = [200, 200, 400, 400, 400]
        even = np.full(classes, 1e8 / classes)
        mixing = Mixing(np.outer(even, even) / 1e8, even, even, 1e8, even)
        learnt = Learnt(weights, mixing, EdgeCounts(inside, inside[:, 1]))
        return dataclasses.replace(auto, learnt=learnt)

    ready = learn()
    times = {
        "sld": median_time(lambda: sld.estimate(batch, nodes, reference, "count")),
        "learn": median_time(learn),
        "answer": median_time(lambda: ready.estimate(batch, nodes, reference, "count")),
    }
    ratio = (times["learn"] + times["answer"]) / times["sld"]
    row = {
        "communities": communities,
        "classes": classes,
        "members": int(offsets[-1]),
        **{f"{name}_s": round(value, 3) for name, value in times.items()},
        "ratio": round(ratio, 2),
        "machine": platform.processor() or platform.machine(),
    }
    sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
