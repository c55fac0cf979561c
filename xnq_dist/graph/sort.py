"""External sort of integer pairs in bounded memory, with the rules for edges.

Pairs are packed into one int64 key and sorted in runs that fit in memory, and ranges
of the majors of all runs that fit in memory, or have a single major, are sorted again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints, Ints32, offsets_of
from xnq_dist.core.errors import DoesNotFitError, XnqError
from xnq_dist.core.threads import ahead
from xnq_dist.graph import scratch

__all__ = ["KEY", "PairSorter", "SortedRun", "SparseRows"]

_BYTES_A_PAIR = {False: 64, True: 128}
"""Buffer, sort, selection and unpacking together, without and with weights."""
KEY = 8
"""Bytes of a key, and of a weight, in a sorted run."""
Conflict = Callable[[int, int], XnqError]
"""Makes the error of a pair (major, minor) that has different weights."""


@dataclass(frozen=True)
class SparseRows:
    """Consecutive rows of a sparse matrix, such as the adjacency.

    Those of a sorter are its majors: they follow one another without gaps, from 0 to
    the number of majors, and have their pairs in order, each once.
    """

    first: int
    """The first row, such as a canonical index."""
    indptr: Ints
    """Shape (rows + 1,), from 0."""
    indices: NDArray[Any]
    """Columns: int32 in an adjacency, int64 from a sorter."""
    weights: NDArray[Any]
    """Empty for an adjacency without."""

    @property
    def last(self) -> int:
        """The row after the last one."""
        return self.first + len(self.indptr) - 1

    @property
    def edges(self) -> tuple[int, Ints, Ints32]:
        """First row, row pointers and columns: the arguments of kernels."""
        return self.first, self.indptr, self.indices

    @property
    def targets(self) -> Ints:
        """The row of each edge."""
        return np.repeat(np.arange(self.first, self.last), np.diff(self.indptr))


@dataclass(frozen=True)
class SortedRun:
    """Sorted keys in a file, and their weights after them."""

    path: Path
    size: int
    """Number of keys."""
    weighted: bool

    def read(self) -> tuple[Ints, Floats]:
        """Keys and weights, mapped; no weights without.

        Raises
        ------
        StageError
            When the file is missing or has another size.
        """
        count = self.size * (2 if self.weighted else 1)
        values = scratch.shared(self.path, np.int64, count)
        return values[: self.size], values[self.size :].view(np.float64)


class PairSorter:
    """Sorts more pairs than fit in memory.

    A pair is added as an original or as the reverse of one; a reverse is ignored if the
    pair is also an original. Both numbers are in 0..n-1 and together must fit in 62
    bits. Buffers take `memory` bytes, or as much as the pairs of one call or of one
    major if that is more. Temporary files in `folder` are removed when the last chunk
    was read.

    Without weights, the weight of a pair is the number of times it was added, reverses
    included.

    Several sorters can share the work: each sorts some of the pairs (`runs`), and each
    merges all pairs of some majors (`ranges`, `merge`).
    """

    def __init__(
        self,
        n_major: int,
        n_minor: int,
        memory: int,
        folder: Path,
        weighted: bool = False,
    ) -> None:
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
        self._majors = n_major
        self._fits = memory // _BYTES_A_PAIR[weighted]
        self._weighted = weighted
        self._folder = folder
        self._keys: list[Ints] = []
        self._weights: list[Floats] = []
        self._filled = 0
        self._runs: list[SortedRun] = []

    def add(
        self,
        major: NDArray[np.integer],
        minor: NDArray[np.integer],
        weight: Floats | None = None,
        reverse: bool = False,
    ) -> None:
        """Add pairs, as arrays of the same length; with weights if weighted."""
        self._keys.append((major.astype(np.int64) << self._bits | minor) << 1 | reverse)
        if self._weighted:
            self._weights.append(np.asarray(weight, np.float64))
        self._filled += len(major)
        if self._filled >= self._fits:
            self._spill()

    def _spill(self) -> None:
        """Sort the added pairs and write them to a file."""
        weights = np.concatenate([np.empty(0), *self._weights])
        keys, weights = _ordered(np.concatenate(self._keys), weights)
        self._keys, self._weights, self._filled = [], [], 0
        # Sorters of several processes share a folder.
        path = self._folder / f"run-{uuid.uuid4().hex}"
        scratch.append(path, keys)
        scratch.append(path, weights)
        self._runs.append(SortedRun(path, len(keys), self._weighted))

    def runs(self) -> list[SortedRun]:
        """Sort all pairs into files, which stay; the sorter is empty then."""
        if self._filled:
            self._spill()
        runs, self._runs = self._runs, []
        return runs

    def ranges(
        self, runs: Sequence[SortedRun], size: int | None = None
    ) -> list[tuple[int, int]]:
        """Ranges of majors, which fit in memory or have a single major.

        `size`: maximum number of pairs of a range with several majors.
        """
        # A range is in memory twice, as it was read and sorted.
        fits, count = self._fits // 2, max(len(runs), 1)
        step = max(min(size or fits, fits) // (2 * count), 1)
        # No run has more than `step` keys between two of its samples. Between each two
        # bounds are as many samples as runs.
        samples = [
            np.empty(0, np.int64),
            *(run.read()[0][step - 1 :: step] for run in runs),
        ]
        bounds = np.sort(np.concatenate(samples))[count - 1 :: count]
        inner = np.unique(bounds >> self._bits + 1)
        return list(pairwise([0, *inner[inner > 0].tolist(), self._majors]))

    def chunks(self) -> Iterator[SparseRows]:
        """Yield the pairs in order, with complete majors; can be called once.

        The weights of duplicate pairs are added up.
        """
        runs = self.runs()
        yield from ahead(self.merge(runs, *majors) for majors in self.ranges(runs))
        for run in runs:
            run.path.unlink()

    def merge(
        self,
        runs: Sequence[SortedRun],
        first: int,
        last: int,
        conflict: Conflict | None = None,
    ) -> SparseRows:
        """The pairs of the majors first to last - 1, also from runs of other sorters.

        Of duplicate pairs one is kept; `conflict` makes the error when they have
        different weights. Without it the weights are added up (sorted, so that the
        order of rows does not matter).
        """
        bounds, parts = np.array([first, last]) << self._bits + 1, []
        for run in runs:
            keys, weights = run.read()
            some = slice(*np.searchsorted(keys, bounds))
            parts.append((keys[some], weights[some]))
        keys = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in parts)])
        weights = np.concatenate([np.empty(0), *(some for _, some in parts)])
        keys, weights = _ordered(keys, weights)
        pairs, values = self._settled(keys, weights, conflict)
        degrees = np.bincount((pairs >> self._bits) - first, minlength=last - first)
        minor = pairs & ((1 << self._bits) - 1)
        return SparseRows(first, offsets_of(degrees), minor, values)

    def _settled(
        self,
        keys: Ints,
        weights: Floats,
        conflict: Conflict | None,
    ) -> tuple[Ints, Floats]:
        """Each pair once; arguments are as of `merge`."""
        pairs = keys >> 1
        fresh = np.diff(pairs, prepend=-1) > 0
        # Within a pair the originals come first: their flag bit is 0.
        reverse = keys & 1 == 1
        self.reversed_added += int(np.count_nonzero(fresh & reverse))
        self.duplicates += int(np.count_nonzero(~(fresh | reverse)))
        if not self._weighted:
            counts = np.diff(np.flatnonzero(fresh), append=len(keys))
            return pairs[fresh], counts.astype(np.float64)
        if fresh.all():
            return pairs, weights
        group = np.cumsum(fresh) - 1
        # The reverse of an original is ignored.
        used = ~reverse | reverse[fresh][group]
        group, weights, used_pairs = group[used], weights[used], pairs[used]
        weights = weights[np.lexsort((weights, group))]
        if conflict is None:
            return pairs[fresh], np.bincount(group, weights).astype(np.float64)
        again = group[1:] == group[:-1]
        differs = again & (weights[1:] != weights[:-1])
        if differs.any():
            pair = int(used_pairs[np.argmax(differs)])
            raise conflict(pair >> self._bits, pair & ((1 << self._bits) - 1))
        return pairs[fresh], weights[np.concatenate([[True], ~again])]


def _ordered(keys: Ints, weights: Floats) -> tuple[Ints, Floats]:
    """Sorted keys, in place without weights.

    NumPy's stable sort takes a seventh of the default's time for the keys of sorted
    runs, a fiftieth for those of one, and a fifth more for keys without any order.
    """
    if not len(weights):
        keys.sort(kind="stable")
        return keys, weights
    order = np.argsort(keys, kind="stable")
    return keys[order], weights[order]
