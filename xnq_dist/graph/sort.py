"""External sort of integer pairs in bounded memory, with the rules for edges.

Pairs are packed into one int64 key and sorted in runs that fit in memory, and ranges
of the keys of all runs that fit in memory are sorted again. This does not depend on the
distribution of the keys: a hub with most of the pairs is divided like any other node.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.errors import DoesNotFitError, XnqError
from xnq_dist.graph import scratch
from xnq_dist.graph.ahead import ahead

__all__ = ["KEY", "PairChunk", "PairSorter", "SortedRun", "pairs_held"]

_BYTES_A_PAIR = {False: 64, True: 128}
"""Buffer, sort, selection and unpacking together, without and with weights."""
_SMALLEST_BLOCK = 64
KEY = 8
"""Bytes of a key, and of a weight, in a sorted run."""

Keys = Ints
Weights = Floats | None


def pairs_held(memory: int, weighted: bool) -> int:
    """Number of pairs from which on sorted runs are written to disk."""
    return max(memory // _BYTES_A_PAIR[weighted], 2 * _SMALLEST_BLOCK)


@dataclass(frozen=True)
class PairChunk:
    """All pairs of a range of majors, sorted by (major, minor), each pair once.

    Chunks follow one another without gaps, from 0 to the number of majors.
    """

    first: int
    last: int
    """Majors first to last - 1."""
    indptr: Ints
    """Offsets of each major's pairs, shape (last - first + 1,), from 0."""
    minor: Ints
    weight: Floats | None


@dataclass(frozen=True)
class SortedRun:
    """Sorted keys and weights, in files or in memory, and the part that counts."""

    keys: Path | Keys
    weights: Path | Weights
    size: int
    """Number of all keys."""
    first: int
    last: int
    """Keys first to last - 1 count."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return tuple(p for p in (self.keys, self.weights) if isinstance(p, Path))

    def mapped(self) -> Keys:
        """The keys that count; pages in memory belong to the array."""
        keys = self.keys
        if isinstance(keys, Path):
            keys = scratch.mapped(keys, np.int64)
        return keys[self.first : self.last]

    def read(self) -> tuple[Keys, Weights]:
        """The keys that count, and their weights."""
        keys: Keys = self._part(self.keys, np.int64)
        if self.weights is None:
            return keys, None
        return keys, self._part(self.weights, np.float64)

    def _part(self, where: Path | NDArray[Any], dtype: type) -> NDArray[Any]:
        if isinstance(where, Path):
            return scratch.read(where, dtype, self.first, self.last - self.first)
        return where[self.first : self.last]

    def sampled(self, step: int) -> Keys:
        """One of every `step` keys."""
        return self.mapped()[step - 1 :: step].copy()

    def between(self, low: int, high: int) -> SortedRun:
        """The keys from `low` to `high` - 1, of a run that another sorter made.

        Raises
        ------
        StageError
            When a file is missing or has another size.
        """
        for path in self.paths:
            scratch.shared(path, np.int64, self.size)
        bounds = np.searchsorted(self.mapped(), (low, high)) + self.first
        return replace(self, first=int(bounds[0]), last=int(bounds[1]))


class PairSorter:
    """Sorts more pairs than fit in memory; a context manager.

    A pair is added as an original or as the reverse of one; a reverse is ignored if the
    pair is also an original. Both numbers are in 0..n-1 and together must fit in 62
    bits. Buffers take `memory` bytes, or as much as the pairs of one major if that is
    more. Temporary files in `folder` are removed at the end.

    With `counted` the weight of a pair is the number of times it was added, as if each
    time had weight 1, in half the memory; there are no reverses.

    Several sorters can share the work: each sorts some of the pairs (`runs`), and each
    merges all pairs of some majors (`merge`).
    """

    def __init__(
        self,
        n_major: int,
        n_minor: int,
        memory: int,
        folder: Path,
        weighted: bool = False,
        counted: bool = False,
    ) -> None:
        self._counted = counted
        # Shift instead of multiplying: dividing would take longer than sorting.
        self._bits = max(n_minor - 1, 1).bit_length()
        if n_major << self._bits >= 2**62:
            raise DoesNotFitError(
                f"{n_major:,} times {n_minor:,} pairs do not fit in 62 bits: split the "
                "table"
            )
        self.duplicates = 0
        """Number of repeated originals; complete when `chunks` has ended."""
        self.reversed_added = 0
        """Number of pairs that were added as reverses only."""
        self._majors = 0, n_major
        self._memory = memory
        self._capacity = pairs_held(memory, weighted)
        self._folder = folder
        self._keys = np.empty(self._capacity, np.int64)
        self._weights = np.empty(self._capacity, np.float64) if weighted else None
        self._filled = 0
        self._runs: list[SortedRun] = []
        self._others: list[SortedRun] = []

    def __enter__(self) -> PairSorter:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            for path in run.paths:
                path.unlink(missing_ok=True)

    def add(
        self,
        major: NDArray[np.integer],
        minor: NDArray[np.integer],
        weight: Floats | None = None,
        reverse: bool = False,
    ) -> None:
        """Add pairs, as arrays of the same length; with weights if weighted."""
        start = 0
        while start < len(major):
            stop = min(len(major), start + self._capacity - self._filled)
            into = slice(self._filled, self._filled + stop - start)
            some = slice(start, stop)
            pack_keys(major[some], minor[some], self._bits, reverse, self._keys[into])
            if self._weights is not None and weight is not None:
                self._weights[into] = weight[start:stop]
            self._filled = into.stop
            start = stop
            if self._filled == self._capacity:
                self._spill()

    def _spill(self) -> None:
        """Sort the buffer, write it to files and empty it."""
        keys, weights = self._distinct()
        # Sorters of several processes share a folder.
        path = self._folder / f"run-{uuid.uuid4().hex}"
        values = None if weights is None else path.with_suffix(".weights")
        run = SortedRun(path.with_suffix(".keys"), values, len(keys), 0, len(keys))
        self._runs.append(run)
        scratch.append(path.with_suffix(".keys"), keys)
        if values is not None and weights is not None:
            scratch.append(values, weights)
        self._filled = 0

    def _distinct(self) -> tuple[Keys, Weights]:
        """The keys of the buffer, sorted; without weights, each once."""
        some = None if self._weights is None else self._weights[: self._filled]
        keys, weights = _ordered(self._keys[: self._filled], some)
        if weights is None and not self._counted:
            count, repeated = drop_repeated(keys)
            self.duplicates += int(repeated)
            keys = keys[:count]
        return keys, weights

    def runs(self, held: bool = False) -> list[SortedRun]:
        """Sort all pairs into files, which stay; the sorter is empty then.

        `held`: pairs that fit in memory stay there instead.
        """
        if held and not self._runs:
            keys, weights = self._distinct()
            self._filled = 0
            return [SortedRun(keys, weights, len(keys), 0, len(keys))]
        if self._filled:
            self._spill()
        runs, self._runs = self._runs, []
        return runs

    def sizes(self, runs: Iterable[SortedRun], majors: Ints) -> Ints:
        """Number of keys in runs of sorters between each two of some majors."""
        keys = majors << self._bits + 1
        sizes = np.zeros(len(majors) - 1, np.int64)
        for run in runs:
            sizes += np.diff(np.searchsorted(run.mapped(), keys))
        return sizes

    def merge(self, runs: Iterable[SortedRun], first: int, last: int) -> None:
        """Take the pairs of the majors first to last - 1 from runs of other sorters.

        `chunks` then covers these majors alone.
        """
        self._majors = first, last
        low, high = (major << self._bits + 1 for major in self._majors)
        self._others = [run.between(low, high) for run in runs]

    def chunks(
        self,
        duplicates: Literal["drop", "sum"] = "drop",
        conflict: Callable[[int, int], XnqError] | None = None,
    ) -> Iterator[PairChunk]:
        """Yield the pairs in order, with complete majors; can be called once.

        For duplicate pairs, ``drop`` keeps one and ``sum`` adds the weights (sorted, so
        that the order of rows does not matter). `conflict` makes the error for (major,
        minor) when ``drop`` meets different weights; without it the smallest is kept.
        """
        target = max(self._memory // 128, _SMALLEST_BLOCK)
        waiting: list[tuple[Keys, Weights]] = []
        size = 0
        first, end = self._majors
        for keys, weights in ahead(self._merged()):
            waiting.append(self._settled(keys, weights, duplicates, conflict))
            size += len(waiting[-1][0])
            if size < target:
                continue
            pairs, values = _joined(waiting)
            last = int(pairs[-1] >> self._bits) if len(pairs) else first
            # The last major may continue in the next piece.
            cut = int(np.searchsorted(pairs, last << self._bits))
            waiting = [(pairs[cut:], None if values is None else values[cut:])]
            size = len(pairs) - cut
            if last > first:
                values = None if values is None else values[:cut]
                yield self._chunk(first, last, pairs[:cut], values)
                first = last
        # Without pairs, what is left of the buffers has none either.
        pairs, values = _joined(waiting) if waiting else (self._keys, self._weights)
        yield self._chunk(first, end, pairs, values)

    def _chunk(self, first: int, last: int, pairs: Keys, weights: Weights) -> PairChunk:
        indptr = np.zeros(last - first + 1, np.int64)
        minor = np.empty(len(pairs), np.int64)
        unpack_pairs(pairs, self._bits, first, indptr, minor)
        np.cumsum(indptr, out=indptr)
        return PairChunk(first, last, indptr, minor, weights)

    def _merged(self) -> Iterator[tuple[Keys, Weights]]:
        """Yield all keys in order, in pieces that never split the keys of one pair."""
        weighted = self._weights is not None
        self._runs = self.runs(held=True)
        self._keys = np.empty(0, np.int64)
        self._weights = np.empty(0, np.float64) if weighted else None
        sources = self._runs + self._others
        # A range is in memory twice, as it was read and sorted.
        for runs in _ranges(sources, self._memory // (2 * _BYTES_A_PAIR[weighted])):
            pieces = [run.read() for run in runs if run.first < run.last]
            if len(pieces) > 1:
                yield _ordered(*_joined(pieces))
            else:
                yield from pieces

    def _settled(
        self,
        keys: Keys,
        weights: Weights,
        duplicates: Literal["drop", "sum"],
        conflict: Callable[[int, int], XnqError] | None,
    ) -> tuple[Keys, Weights]:
        """Each pair once, with the weight that `duplicates` defines."""
        if self._counted:
            starts = np.flatnonzero(np.diff(keys, prepend=-1))
            counts = np.diff(starts, append=len(keys))
            self.duplicates += len(keys) - len(starts)
            return keys[starts] >> 1, counts.astype(np.float64)
        if weights is None:
            pairs = np.empty(len(keys), np.int64)
            count, repeated, reverses = settle_pairs(keys, pairs)
            self.duplicates += int(repeated)
            self.reversed_added += int(reverses)
            return pairs[:count], None
        pairs = keys >> 1
        if not len(keys):
            return pairs, weights
        fresh = np.empty(len(keys), bool)
        fresh[0] = True
        np.not_equal(pairs[1:], pairs[:-1], out=fresh[1:])
        # Within a pair the originals come first: their flag bit is 0.
        reverse = keys & 1 == 1
        self.reversed_added += int(np.count_nonzero(fresh & reverse))
        original = ~reverse
        self.duplicates += int(np.count_nonzero(original & ~fresh))
        starts = np.flatnonzero(fresh)
        if len(starts) == len(keys):
            return pairs, weights
        group = np.cumsum(fresh) - 1
        # The reverse of an original is ignored.
        used = original | reverse[starts][group]
        group, weights, used_pairs = group[used], weights[used], pairs[used]
        order = np.lexsort((weights, group))
        weights = weights[order]
        if duplicates == "drop":
            differs = (group[1:] == group[:-1]) & (weights[1:] != weights[:-1])
            if conflict is not None and differs.any():
                pair = int(used_pairs[np.argmax(differs)])
                raise conflict(pair >> self._bits, pair & ((1 << self._bits) - 1))
            _, at = np.unique(group, return_index=True)
            return pairs[starts], weights[at]
        return pairs[starts], np.bincount(group, weights).astype(np.float64)


def _ranges(runs: list[SortedRun], size: int) -> Iterator[list[SortedRun]]:
    """Divide sorted runs into ranges of keys, at most `size` of them in each.

    A range holds complete pairs, so that it is larger if one pair occurs more often.
    """
    step = max(size // (2 * len(runs)), 1)
    # No run has more than `step` keys between two of its samples. Between each two
    # bounds are as many samples as runs.
    samples = np.sort(np.concatenate([run.sampled(step) for run in runs]))
    bounds = np.unique(samples[len(runs) - 1 :: len(runs)] & ~1)
    marks = [
        [0, *np.searchsorted(run.mapped(), bounds).tolist(), run.last - run.first]
        for run in runs
    ]
    for at in range(len(bounds) + 1):
        yield [
            replace(run, first=run.first + mark[at], last=run.first + mark[at + 1])
            for run, mark in zip(runs, marks, strict=True)
        ]


def _ordered(keys: Keys, weights: Weights) -> tuple[Keys, Weights]:
    """Sorted keys, in place without weights; equal keys in any order."""
    if weights is None:
        keys.sort()
        return keys, None
    order = np.argsort(keys)
    return keys[order], weights[order]


def _joined(pieces: list[tuple[Keys, Weights]]) -> tuple[Keys, Weights]:
    weights = [piece[1] for piece in pieces if piece[1] is not None]
    keys = np.concatenate([piece[0] for piece in pieces])
    return keys, np.concatenate(weights) if weights else None


@njit(cache=True, nogil=True)
def pack_keys(
    major: NDArray[np.integer],
    minor: NDArray[np.integer],
    bits: int,
    reverse: bool,
    out: Keys,
) -> None:
    """Pack each pair as major, `bits` bits of minor, and a flag bit for reverses."""
    flag = np.int64(1) if reverse else np.int64(0)
    for i in range(major.shape[0]):
        pair = (np.int64(major[i]) << bits) | np.int64(minor[i])
        out[i] = (pair << 1) | flag


@njit(cache=True, nogil=True)
def drop_repeated(keys: Keys) -> tuple[int, int]:
    """Move the distinct values of sorted keys to the front.

    Returns their number, and the number of repeated originals.
    """
    count = 0
    repeated = 0
    for i in range(keys.shape[0]):
        key = keys[i]
        if count > 0 and key == keys[count - 1]:
            repeated += 1 - (key & 1)
        else:
            keys[count] = key
            count += 1
    return count, repeated


@njit(cache=True, nogil=True)
def settle_pairs(keys: Keys, pairs: Keys) -> tuple[int, int, int]:
    """Write the distinct pairs of sorted keys to `pairs`.

    Returns their number, the number of repeated originals, and the number of pairs that
    have only reverses.
    """
    count = 0
    repeated = 0
    reverses = 0
    before = np.int64(-1)
    for i in range(keys.shape[0]):
        key = keys[i]
        if key == before:
            repeated += 1 - (key & 1)
        # Within a pair the originals come first: their flag bit is 0.
        elif before < 0 or key >> 1 != before >> 1:
            pairs[count] = key >> 1
            count += 1
            reverses += key & 1
        before = key
    return count, repeated, reverses


@njit(cache=True, nogil=True)
def unpack_pairs(pairs: Keys, bits: int, first: int, counts: Ints, minor: Ints) -> None:
    """Write the minors of pairs; add the number of pairs of each major to `counts`."""
    mask = (np.int64(1) << bits) - 1
    for i in range(pairs.shape[0]):
        counts[(pairs[i] >> bits) - first + 1] += 1
        minor[i] = pairs[i] & mask
