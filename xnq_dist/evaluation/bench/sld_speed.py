"""SLD over communities of every shape, QuaPy's EMQ in a loop beside.

Posteriors are calibrated logits of a planted shift: each community has a prevalence of
its own, so that EM has something to find.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.evaluation.bench.harness import OURS, Bench
from xnq_dist.quantify.classic.giants import giant_sld
from xnq_dist.quantify.classic.sld import Sld
from xnq_dist.quantify.interface import Communities, NodeTable, Reference

__all__ = ["sld"]

BATCHES_A_THREAD = 4
"""As `quantify.stage` cuts them."""
PRIOR = np.array([0.7, 0.3])


def sld(bench: Bench) -> None:
    """Many communities, tiny ones, one giant, a power law of sizes."""
    threads = bench.record("threads", "threads", OURS, len(os.sched_getaffinity(0)), "")
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
    whole = _communities(rng, rng.poisson(100, count).clip(1), nodes)
    ours = bench.time(case, OURS, lambda: _estimate(whole, nodes, threads))
    one = f"{OURS}, one thread"
    bench.time(case, one, lambda: _estimate(whole, nodes, 1))
    quapy_loop = _quapy()
    if quapy_loop is None:
        return
    some = min(200, count)
    members = [
        nodes.posteriors[whole.members[whole.offsets[s] : whole.offsets[s + 1]]]
        for s in range(some)
    ]
    note = f"QuaPy: timed on {some} of the communities and scaled to {count:,}"
    peer = bench.time(
        case, "QuaPy EMQ", lambda: quapy_loop(members), scale=count / some, note=note
    )
    aim = 200.0 if bench.size == "full" else None
    bench.ratio("QuaPy's time over ours", peer / ours, "more", aim)
    found = _estimate(whole, nodes, threads)[:some]
    apart = float(np.abs(found - quapy_loop(members)).max())
    bench.record(case, "largest difference", "QuaPy EMQ", apart, "")
    bench.ratio("largest difference from QuaPy", max(apart, 1e-9), "less", 1e-3)


def _tiny(
    bench: Bench, nodes: NodeTable, rng: np.random.Generator, threads: int
) -> None:
    count = bench.choose(10_000, 1_000_000)
    case = f"{count:,} communities of 10"
    whole = _communities(rng, np.full(count, 10), nodes)
    seconds = bench.time(case, OURS, lambda: _estimate(whole, nodes, threads))
    bench.record(case, "rate", OURS, len(whole.members) / seconds, "members/s")


def _power_law(
    bench: Bench, nodes: NodeTable, rng: np.random.Generator, threads: int
) -> None:
    """Time of all threads together over the time if all had shared it evenly."""
    count = bench.choose(2_000, 200_000)
    most = bench.choose(10_000, 200_000)
    sizes = (10 * (1 - rng.random(count)) ** (-1 / 1.2)).clip(10, most).astype(np.int64)
    case = f"{count:,} communities, power-law sizes up to {int(sizes.max()):,}"
    whole = _communities(rng, sizes, nodes)
    busy: list[float] = []

    def work() -> None:
        began = time.perf_counter()
        _, spent = _timed(whole, nodes, threads)
        busy.append(threads * (time.perf_counter() - began) / spent)

    bench.time(case, OURS, work)
    for number, value in enumerate(busy[1:]):
        bench.record(case, "wall over even share", OURS, value, "", number)
    bench.ratio("power law, wall over even share", np.median(busy[1:]), "less")


def _giant(bench: Bench, rng: np.random.Generator) -> None:
    size = bench.choose(200_000, 50_000_000)
    case = f"one community of {size:,}"
    nodes = _nodes(rng, size)
    whole = Communities(np.array([0, size]), np.arange(size))
    sums = np.zeros(2)

    def read() -> None:
        sums[:] = nodes.posteriors.sum(axis=0, dtype=np.float64)

    table = nodes.unlabelled, nodes.posteriors, PRIOR

    def alone() -> None:
        giant_sld(whole.members, *table, 1e-4, 1000, threads=1)

    ours = bench.time(case, OURS, lambda: _estimate(whole, nodes, 1))
    bench.time(case, f"{OURS}, one thread", alone)
    once = bench.time(case, "NumPy, one sum over the posteriors", read)
    bench.record(case, "rate", OURS, size / ours, "members/s")
    bench.ratio("one giant community over one sum of it", ours / once, "less")


def _nodes(rng: np.random.Generator, count: int) -> NodeTable:
    # In blocks: nothing of the size of the whole in float64.
    posteriors = np.empty((count, 2), np.float32)
    for first in range(0, count, 1 << 20):
        some = posteriors[first : first + (1 << 20)]
        truth = rng.random(len(some)) < PRIOR[1]
        logit = rng.normal(0, 1, len(some)) * np.sqrt(2.0) + np.where(truth, 1.0, -1.0)
        logit += np.log(PRIOR[1] / PRIOR[0])
        some[:, 1] = 1 / (1 + np.exp(-logit))
        some[:, 0] = 1 - some[:, 1]
    nothing = np.full(count, -1, np.int32)
    return NodeTable(posteriors, nothing, np.zeros(count, bool), ("0", "1"))


def _communities(
    rng: np.random.Generator, sizes: NDArray[np.int64], nodes: NodeTable
) -> Communities:
    """Members drawn so that a community leans to high or low posteriors."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    order = np.argsort(nodes.posteriors[:, 1], kind="stable")
    lean = np.repeat(rng.uniform(0.5, 2.0, len(sizes)), sizes)
    at = (rng.random(offsets[-1]) ** lean * len(order)).astype(np.int64)
    members = order[np.minimum(at, len(order) - 1)]
    return Communities(offsets, members.astype(np.int64))


def _batches(whole: Communities, threads: int) -> list[Communities]:
    """Batches of about equal members, as the stage cuts them."""
    share = len(whole.members) // (threads * BATCHES_A_THREAD) + 1
    cuts = np.searchsorted(whole.offsets, np.arange(share, whole.offsets[-1], share))
    bounds = np.unique(np.concatenate([[0], cuts, [len(whole)]]))
    return [
        Communities(
            whole.offsets[first : last + 1] - whole.offsets[first],
            whole.members[whole.offsets[first] : whole.offsets[last]],
        )
        for first, last in pairwise(bounds.tolist())
    ]


def _estimate(
    whole: Communities, nodes: NodeTable, threads: int
) -> NDArray[np.float64]:
    return _timed(whole, nodes, threads)[0]


def _timed(
    whole: Communities, nodes: NodeTable, threads: int
) -> tuple[NDArray[np.float64], float]:
    """Prevalences, and the seconds of all threads together."""
    quantifier, reference = Sld(), Reference(PRIOR)

    def answer(batch: Communities) -> tuple[Any, float]:
        began = time.perf_counter()
        found = quantifier.estimate(batch, nodes, reference).prevalence
        return found, time.perf_counter() - began

    batches = [whole] if threads == 1 else _batches(whole, threads)
    with ThreadPoolExecutor(threads) as pool:
        found, seconds = zip(*pool.map(answer, batches), strict=True)
    return np.concatenate(found), sum(seconds)


def _quapy() -> Any:
    """QuaPy's EMQ as a loop over communities; None where it is not installed."""
    try:
        from quapy.method.aggregative import EMQ
    except ImportError:
        return None

    def loop(members: list[NDArray[np.float32]]) -> NDArray[np.float64]:
        return np.stack([EMQ.EM(PRIOR, some)[0] for some in members])

    return loop
