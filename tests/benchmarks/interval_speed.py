"""Time of bootstrap intervals and of estimates: communities of about 100 nodes.

    python tests/benchmarks/interval_speed.py [SETS] [RESAMPLES] [NAMES] [CLASSES]

Prints one JSON line per quantifier (NAMES, comma-separated: sld): seconds of the point
estimates in one thread (median of three), of their intervals in one thread, of the
intervals in two threads with half of the communities each, and the ratio of intervals
to estimates in one thread. Work done once per process (replicates of the labelled
nodes) is counted separately.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from xnq_dist.core.config import load_settings
from xnq_dist.quantify.bootstrap import Bootstrap
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Reference,
)
from xnq_dist.quantify.registry import make_quantifier

LABELLED = 6000


def world(communities: int, classes: int) -> tuple[Communities, NodeTable, Reference]:
    """Ten nodes a community, drawn into sets of about 100; labelled ones apart."""
    rng = np.random.default_rng(0)
    n_nodes = 10 * communities + LABELLED
    truth = rng.integers(0, classes, n_nodes)
    logits = rng.normal(0, 1.5, (n_nodes, classes))
    logits[np.arange(n_nodes), truth] += 1.5**2
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    rows = (rows / rows.sum(axis=1, keepdims=True)).astype(np.float32)
    labels = np.full(n_nodes, -1, np.int32)
    labels[:LABELLED] = truth[:LABELLED]
    known = labels[:LABELLED]
    nodes = NodeTable(rows, labels, labels >= 0, tuple(map(str, range(classes))))
    sizes = np.clip(rng.poisson(100, communities), 1, None)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    batch = Communities(offsets, rng.integers(LABELLED, n_nodes, offsets[-1]))
    held = rows[:LABELLED]
    reference = Reference(
        np.bincount(known, minlength=classes) / LABELLED,
        held,
        known,
    )
    return batch, nodes, reference


def cut(batch: Communities, begin: int, end: int) -> Communities:
    """Some communities, one after the other."""
    offsets = batch.offsets[begin : end + 1]
    members = batch.members[offsets[0] : offsets[-1]]
    return Communities(offsets - offsets[0], members)


def main(
    communities: int = 100_000,
    resamples: int = 100,
    names: str = "sld",
    classes: int = 2,
) -> None:
    """Measure and print."""
    batch, nodes, reference = world(communities, classes)
    settings = load_settings(overrides=[f"intervals.resamples={resamples}"])
    few = cut(batch, 0, min(200, communities))
    middle = communities // 2
    halves = [(0, cut(batch, 0, middle)), (middle, cut(batch, middle, communities))]
    for name in names.split(","):
        quantifier = make_quantifier(name, settings)

        def answer(sets: Communities, by=quantifier) -> Estimates:
            return by.estimate(sets, nodes, reference)

        answer(few)
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            found = answer(batch)
            seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        made = Bootstrap.of(quantifier, settings, reference)
        replicates = time.perf_counter() - began
        if made is None:
            raise ValueError(f"{name} has no bootstrap: name a classic quantifier")
        made.with_ends(few, nodes, reference, answer(few))
        began = time.perf_counter()
        ends = made.with_ends(batch, nodes, reference, found)
        alone = time.perf_counter() - began
        answers = [answer(half) for _, half in halves]
        began = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:
            parts = list(
                pool.map(
                    lambda at, made=made, answers=answers: made.with_ends(
                        halves[at][1], nodes, reference, answers[at], halves[at][0]
                    ),
                    range(2),
                )
            )
        both = time.perf_counter() - began
        lower = np.concatenate([part.lower for part in parts])
        row = {
            "quantifier": name,
            "communities": communities,
            "classes": classes,
            "members": int(batch.offsets[-1]),
            "resamples": resamples,
            "estimate_s": round(float(np.median(seconds)), 3),
            "replicates_s": round(replicates, 3),
            "intervals_s": round(alone, 2),
            "two_threads_s": round(both, 2),
            "ratio": round(alone / float(np.median(seconds)), 1),
            "same_bits": bool(np.array_equal(lower, ends.lower)),
            "machine": platform.processor() or platform.machine(),
        }
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*map(int, given[:2]), *given[2:3], *map(int, given[3:]))
