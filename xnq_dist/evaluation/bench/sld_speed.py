"""Benchmark of SLD over communities of many sizes, compared with QuaPy's EMQ in a loop.

Posteriors are calibrated logits with a planted shift: each community has a different
prevalence, so that EM needs several iterations.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.limits import processors
from xnq_dist.evaluation.bench.harness import OURS, Bench
from xnq_dist.quantify.classic.giants import giant_sld
from xnq_dist.quantify.classic.sld import Sld
from xnq_dist.quantify.interface import Communities, NodeTable, Reference

__all__ = ["sld"]

BATCHES_A_THREAD = 4
"""Batches per thread, as in `quantify.stage`."""
PRIOR = np.array([0.7, 0.3])


def sld(bench: Bench) -> None:
    """Many communities, tiny communities, power-law sizes and one giant community."""
    threads = bench.record("threads", "threads", OURS, processors(), "")
    rng = np.random.default_rng(0)
    nodes = _nodes(rng, bench.choose(20_000, 400_000))
    _many(bench, nodes, rng, int(threads))
    _tiny(bench, nodes, rng, int(threads))
    _power_law(bench, nodes, rng, int(threads))
    del nodes
    _giant(bench, rng)


def _many(
    bench: Bench, nodes: NodeTable, rng: np.random.Generator, threads: int
) -> None:
    count = bench.choose(2_000, 100_000)
    case = f"{count:,} communities of about 100"
    sets = _communities(rng, rng.poisson(100, count).clip(1), nodes)
    ours = bench.time(case, OURS, lambda: _estimate(sets, nodes, threads))
    bench.time(case, f"{OURS}, one thread", lambda: _estimate(sets, nodes, 1))
    quapy_loop = _quapy()
    if quapy_loop is None:
        return
    timed = min(200, count)
    members = [
        nodes.posteriors[sets.members[sets.offsets[s] : sets.offsets[s + 1]]]
        for s in range(timed)
    ]
    note = f"QuaPy: timed on {timed} of the communities and scaled to {count:,}"
    peer = bench.time(
        case, "QuaPy EMQ", lambda: quapy_loop(members), scale=count / timed, note=note
    )
    bench.ratio("QuaPy's time over ours", peer / ours, "more", bench.full(200.0))
    estimates = _estimate(sets, nodes, threads)[:timed]
    apart = float(np.abs(estimates - quapy_loop(members)).max())
    bench.record(case, "largest difference", "QuaPy EMQ", apart, "")
    bench.ratio("largest difference from QuaPy", max(apart, 1e-9), "less", 1e-3)


def _tiny(
    bench: Bench, nodes: NodeTable, rng: np.random.Generator, threads: int
) -> None:
    count = bench.choose(10_000, 1_000_000)
    case = f"{count:,} communities of 10"
    sets = _communities(rng, np.full(count, 10), nodes)
    seconds = bench.time(case, OURS, lambda: _estimate(sets, nodes, threads))
    bench.record(case, "rate", OURS, len(sets.members) / seconds, "members/s")


def _power_law(
    bench: Bench, nodes: NodeTable, rng: np.random.Generator, threads: int
) -> None:
    """Wall time relative to the time if all threads had equal shares of the work."""
    count = bench.choose(2_000, 200_000)
    largest = bench.choose(10_000, 200_000)
    sizes = 10 * (1 - rng.random(count)) ** (-1 / 1.2)
    sizes = sizes.clip(10, largest).astype(np.int64)
    case = f"{count:,} communities, power-law sizes up to {int(sizes.max()):,}"
    sets = _communities(rng, sizes, nodes)
    busy: list[float] = []

    def work() -> None:
        began = time.perf_counter()
        _, seconds = _timed(sets, nodes, threads)
        busy.append(threads * (time.perf_counter() - began) / seconds)

    bench.time(case, OURS, work)
    for number, value in enumerate(busy[1:]):
        bench.record(case, "wall over even share", OURS, value, "", number)
    bench.ratio("power law, wall over even share", np.median(busy[1:]), "less")


def _giant(bench: Bench, rng: np.random.Generator) -> None:
    size = bench.choose(200_000, 50_000_000)
    case = f"one community of {size:,}"
    nodes = _nodes(rng, size)
    giant = Communities(np.array([0, size]), np.arange(size))
    sums = np.zeros(2)

    def read() -> None:
        sums[:] = nodes.posteriors.sum(axis=0, dtype=np.float64)

    table = nodes.unlabelled, nodes.posteriors, PRIOR

    def one_thread() -> None:
        giant_sld(giant.members, *table, 1e-4, 1000, threads=1)

    ours = bench.time(case, OURS, lambda: _estimate(giant, nodes, 1))
    bench.time(case, f"{OURS}, one thread", one_thread)
    once = bench.time(case, "NumPy, one sum over the posteriors", read)
    bench.record(case, "rate", OURS, size / ours, "members/s")
    bench.ratio("one giant community over one sum of it", ours / once, "less")


def _nodes(rng: np.random.Generator, count: int) -> NodeTable:
    # In blocks, to avoid large temporary arrays in float64.
    posteriors = np.empty((count, 2), np.float32)
    for first in range(0, count, 1 << 20):
        block = posteriors[first : first + (1 << 20)]
        truth = rng.random(len(block)) < PRIOR[1]
        logit = rng.normal(0, 1, len(block)) * np.sqrt(2.0) + np.where(truth, 1.0, -1.0)
        logit += np.log(PRIOR[1] / PRIOR[0])
        block[:, 1] = 1 / (1 + np.exp(-logit))
        block[:, 0] = 1 - block[:, 1]
    unlabelled = np.full(count, -1, np.int32)
    return NodeTable(posteriors, unlabelled, np.zeros(count, bool), ("0", "1"))


def _communities(
    rng: np.random.Generator, sizes: NDArray[np.int64], nodes: NodeTable
) -> Communities:
    """Communities whose members tend to have high or low posteriors."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    order = np.argsort(nodes.posteriors[:, 1], kind="stable")
    lean = np.repeat(rng.uniform(0.5, 2.0, len(sizes)), sizes)
    at = (rng.random(offsets[-1]) ** lean * len(order)).astype(np.int64)
    members = order[np.minimum(at, len(order) - 1)]
    return Communities(offsets, members.astype(np.int64))


def _batches(sets: Communities, threads: int) -> list[Communities]:
    """Batches with about the same number of members each, as in the stage."""
    share = len(sets.members) // (threads * BATCHES_A_THREAD) + 1
    ends = np.searchsorted(sets.offsets, np.arange(share, sets.offsets[-1], share))
    bounds = np.unique(np.concatenate([[0], ends, [len(sets)]]))
    return [
        Communities(
            sets.offsets[first : last + 1] - sets.offsets[first],
            sets.members[sets.offsets[first] : sets.offsets[last]],
        )
        for first, last in pairwise(bounds.tolist())
    ]


def _estimate(sets: Communities, nodes: NodeTable, threads: int) -> NDArray[np.float64]:
    return _timed(sets, nodes, threads)[0]


def _timed(
    sets: Communities, nodes: NodeTable, threads: int
) -> tuple[NDArray[np.float64], float]:
    """Prevalences, and the seconds of all threads together."""
    quantifier, reference = Sld(), Reference(PRIOR)

    def estimate(batch: Communities) -> tuple[Any, float]:
        began = time.perf_counter()
        prevalence = quantifier.estimate(batch, nodes, reference).prevalence
        return prevalence, time.perf_counter() - began

    batches = [sets] if threads == 1 else _batches(sets, threads)
    with ThreadPoolExecutor(threads) as pool:
        prevalences, seconds = zip(*pool.map(estimate, batches), strict=True)
    return np.concatenate(prevalences), sum(seconds)


def _quapy() -> Any:
    """QuaPy's EMQ as a loop over communities; None if QuaPy is not installed."""
    try:
        from quapy.method.aggregative import EMQ
    except ImportError:
        return None

    def loop(members: list[NDArray[np.float32]]) -> NDArray[np.float64]:
        return np.stack([EMQ.EM(PRIOR, rows)[0] for rows in members])

    return loop
