"""SLD over one community of millions of members: gathered once, on all cores.

A community is divided into chunks of equal size, a chunk into tiles. Chunks are summed
in parallel, their sums added in order, so that the number of cores does not change a
bit. Chunks beyond the store are gathered again in every step, with the same sums.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numba import njit

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints
from xnq_dist.core.limits import processors
from xnq_dist.quantify.classic.tiles import TILE, add_expected, gather

__all__ = ["LARGE", "MIN_ITERATIONS", "STORE", "giant_sld", "store_bytes"]

MIN_ITERATIONS = 12
"""Minimum number of M-steps; QuaPy's rule, for equal results."""
CHUNK = 16 * TILE
"""Members of a chunk."""
LARGE = CHUNK
"""Members beyond which a community is worth several threads."""
STORE = 512 << 20
"""Maximum bytes of gathered posteriors that are kept."""
MAX_THREADS = 8


def store_bytes(members: int, n_classes: int) -> int:
    """Bytes that `giant_sld` keeps: one value per member for two classes, else C."""
    chunk = CHUNK * 8 * _kept_rows(n_classes)
    return min(STORE // chunk, -(-members // CHUNK)) * chunk


def _kept_rows(n_classes: int) -> int:
    return 1 if n_classes == 2 else n_classes


def giant_sld(
    members: Ints,
    unlabelled: Bools,
    posteriors: Floats32,
    prior: Floats,
    tolerance: float,
    max_iterations: int,
    threads: int | None = None,
) -> tuple[Floats, int, bool]:
    """Estimate one community; return prevalence, iterations and convergence.

    The results are those of `sld.sld_kernel`. `threads` defaults to the CPUs that this
    process may use, at most 8.
    """
    n_classes = len(prior)
    available = min(processors(), MAX_THREADS)
    count = -(-len(members) // CHUNK)
    threads = max(1, min(available if threads is None else threads, count))
    kept = store_bytes(len(members), n_classes) // (CHUNK * 8 * _kept_rows(n_classes))
    tiles = CHUNK // TILE
    store = np.empty((kept * tiles, _kept_rows(n_classes), TILE))
    filled = np.zeros(kept * tiles, np.int64)
    sums = np.empty((count, n_classes))
    rows = np.zeros(count, np.int64)
    seen = np.zeros(count, np.int64)
    spare = np.empty((threads, n_classes, TILE))
    inverse = np.empty((threads, TILE))
    bounds = [count * number // threads for number in range(threads + 1)]
    spans = list(enumerate(pairwise(bounds)))
    q, steps, done = prior.copy(), 0, False

    def step(span: tuple[int, tuple[int, int]]) -> None:
        number, (first, last) = span
        expected_of_chunks(
            members,
            first,
            last,
            CHUNK,
            unlabelled,
            posteriors,
            q / prior,
            steps == 0,
            store,
            filled,
            spare[number],
            inverse[number],
            sums,
            rows,
            seen,
        )

    with ThreadPoolExecutor(threads) as pool:
        while not done and steps < max_iterations:
            # list() raises the errors of the threads here.
            list(map(step, spans) if threads == 1 else pool.map(step, spans))
            if not seen.any():
                return np.full(n_classes, np.nan), 0, True
            total, used = np.zeros(n_classes), int(rows.sum())
            for chunk in sums:
                total += chunk
            change = 0.0
            if used:
                total[-1] = max(used - total[:-1].sum(), 0.0)
                change = float(np.abs(total / used - q).sum())
                q = total / used
            steps += 1
            done = steps >= MIN_ITERATIONS and change / n_classes < tolerance
    return q / q.sum(), steps, done


@njit(cache=True, nogil=True, error_model="numpy")
def expected_of_chunks(
    members: Ints,
    first: int,
    last: int,
    chunk: int,
    unlabelled: Bools,
    posteriors: Floats32,
    weights: Floats,
    fresh: bool,
    store: Floats,
    filled: Ints,
    spare: Floats,
    inverse: Floats,
    sums: Floats,
    rows: Ints,
    seen: Ints,
) -> None:
    """Add up the expected counts of chunks first to last - 1.

    They go into `sums`, `rows` and `seen`. `weights` are prevalence over prior; `store`
    (T, 1 or C, tile) holds the tiles of the first chunks, with `filled` rows each,
    unless it is `fresh`; `spare` (C, tile) and `inverse` (tile,) are working memory.
    """
    tile = spare.shape[1]
    width = store.shape[1]
    per_chunk = chunk // tile
    for c in range(first, last):
        begin = c * chunk
        end = min(begin + chunk, members.shape[0])
        sums[c, :] = 0.0
        kept = (c + 1) * per_chunk <= store.shape[0]
        if kept and not fresh:
            for t in range(c * per_chunk, (c + 1) * per_chunk):
                add_expected(store[t], filled[t], weights, inverse, sums[c])
            continue
        rows[c] = 0
        seen[c] = 0
        at = c * per_chunk
        while begin < end:
            count, unlabelled_members, begin = gather(
                members, begin, end, unlabelled, posteriors, spare
            )
            rows[c] += count
            seen[c] += unlabelled_members
            if kept:
                for y in range(width):
                    for k in range(count):
                        store[at, y, k] = spare[y, k]
                filled[at] = count
                at += 1
            add_expected(spare, count, weights, inverse, sums[c])
