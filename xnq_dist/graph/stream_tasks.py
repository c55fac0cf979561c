"""The passes of the partitioner ``stream`` by tasks; the same bits as in one process.

Each batch of label propagation is a round of tasks for ranges of its rows. A worker
keeps labels and cluster weights in memory and makes the joins of earlier batches
itself, from the choices that the main process writes to a file. Pairs of clusters are
sampled by ranges of rows. Groups of partitions that exchange nodes (there are several
if their table does not fit in memory) are refined in one task each.

Gains of moves are not computed by ranges of rows: each worker would need the complete
table, a byte for each node and partition, and a round would take longer than its work.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Ints, Ints32
from xnq_dist.core.limits import processors
from xnq_dist.core.worker_tasks import Tasks
from xnq_dist.graph import scratch
from xnq_dist.graph.clustering import (
    NONE_DUE,
    SAMPLE_CHUNK,
    Choices,
    Samples,
    choose_clusters,
    join_clusters,
    sample_rows,
)
from xnq_dist.graph.csr import NO_WEIGHTS, FileCsr, shared_csr, spans
from xnq_dist.graph.loaded import forget, loaded
from xnq_dist.graph.refining import GroupRules, refine_group
from xnq_dist.graph.thread_pool import (
    BATCHES,
    MAX_THREADS,
    ThreadPool,
    batch_spans,
    even_marks,
)

__all__ = ["StreamTasks"]

ROUND = 1 << 22
"""Minimum edges of a batch that is divided among workers, .17 s on one thread: a round
takes 12 ms of the main process, and 1.5 ms more for each task."""
CHOICE_EDGES = 1 << 19
"""Minimum edges of such a task, .02 s."""
SAMPLE_EDGES = 1 << 24
"""Minimum edges of a range while pairs are sampled."""
RANGES = 4
"""Ranges of sampled rows for each task that runs at a time."""


class StreamTasks:
    """Passes over an adjacency that `csr.shared_csr` opens on workers."""

    def __init__(self, csr: FileCsr, tasks: Tasks) -> None:
        self._csr, self._tasks = csr, tasks
        self._job = StreamTask(csr.folder, len(csr.indptr) - 1)

    def choices(self, base: int, max_weight: int) -> Choices | None:
        """For `clustering.find_clusters`; None if rounds of tasks would take longer."""
        if int(self._csr.indptr[-1]) < ROUND * BATCHES:
            return None
        return partial(self._choices, base, max_weight)

    def _choices(
        self, base: int, max_weight: int, label: Ints32, weight: Ints
    ) -> Iterator[tuple[int, Ints32]]:
        indptr, slots = self._csr.indptr, self._tasks.slots
        with self._shared(label=label, weight=weight) as folder:
            one_pass = Pass(folder, len(weight), base, max_weight)
            for number, (first, last) in enumerate(batch_spans(self._csr)):
                count = int(indptr[last] - indptr[first]) // CHOICE_EDGES
                parts = min(max(count, 1), slots)
                marks = even_marks(indptr[first : last + 1], parts)
                ranges = [(first + a, first + b) for a, b in pairwise(marks) if a < b]
                choose = partial(self._job.choose, one_pass, number)
                chosen = np.concatenate(self._tasks.map(choose, ranges))
                scratch.append(one_pass.chosen(number), chosen)
                yield first, chosen

    def samples(self, label: Ints32, clusters: int) -> Samples:
        """For `clustering.contract`."""

        def sample(limit: np.uint64) -> list[Ints]:
            indptr, slots = self._csr.indptr, self._tasks.slots
            size = max(int(indptr[-1]) // (RANGES * slots) + 1, SAMPLE_EDGES)
            with self._shared(label=label) as folder:
                work = partial(self._job.sample, folder, clusters, limit)
                files = self._tasks.map(work, list(spans(indptr, size, len(label))))
                return [_read(file, np.int64, count) for file, count in files]

        return sample

    def turns(self, part: Ints32, groups: Sequence[Ints], rules: GroupRules) -> None:
        """For `refining.refine`."""
        threads = max(self._tasks.slots // len(groups), 1)
        before = part.copy()
        with self._shared(part=part) as folder:
            work = partial(self._job.refine, folder, rules, threads)
            files = self._tasks.map(work, groups)
            # No task moves nodes of another one's partitions.
            for group, file in zip(groups, files, strict=True):
                nodes = np.flatnonzero(np.isin(before, group))
                part[nodes] = scratch.shared(file, np.int32, len(nodes))

    @contextmanager
    def _shared(self, **arrays: NDArray[Any]) -> Iterator[Path]:
        """A folder that all workers can access, with a file for each array."""
        folder = self._tasks.folder / f"stream-{uuid.uuid4().hex}"
        folder.mkdir()
        try:
            for name, array in arrays.items():
                scratch.append(folder / name, array)
            yield folder
        finally:
            self._tasks.everywhere(forget)
            shutil.rmtree(folder)


@dataclass(frozen=True)
class Pass:
    """A pass of label propagation."""

    folder: Path
    """Of the clusters before the pass, and of the choices of its batches so far."""
    clusters: int
    base: int
    max_weight: int

    def chosen(self, number: int) -> Path:
        """File of the clusters that the rows of a batch chose."""
        return self.folder / f"chosen-{number}"


@dataclass(frozen=True)
class StreamTask:
    """The tasks; small and picklable."""

    csr: Path
    """Folder of the adjacency."""
    nodes: int

    def choose(self, one_pass: Pass, number: int, rows: tuple[int, int]) -> Ints32:
        """Clusters that rows first to last - 1, of a batch, choose."""
        state = loaded(Propagation, one_pass.folder, self, one_pass)
        if state.joined > number:  # a repeated call that comes late
            state = Propagation(one_pass.folder, self, one_pass)
        return state.choose(number, rows)

    def sample(
        self, folder: Path, clusters: int, limit: np.uint64, rows: tuple[int, int]
    ) -> tuple[Path, int]:
        """File of the pairs of rows first to last - 1, and their number."""
        label = loaded(_read, folder / "label", np.int32, self.nodes)
        csr, (first, last) = self.adjacency(), rows
        file, size = folder / uuid.uuid4().hex, 0
        file.touch()
        for begin, end in spans(csr.indptr[first : last + 1], SAMPLE_CHUNK):
            some = csr.rows(first + begin, first + end)
            pairs = sample_rows(label, clusters, limit, some)
            scratch.append(file, pairs)
            size += len(pairs)
        return file, size

    def refine(
        self, folder: Path, rules: GroupRules, threads: int, group: Ints
    ) -> Path:
        """File of the new partition of each node of a group of partitions."""
        part = _read(folder / "part", np.int32, self.nodes)
        nodes = np.isin(part, group)
        with ThreadPool(min(threads, processors(), MAX_THREADS)) as pool:
            refine_group(pool, self.adjacency(), part, group, rules)
        file = folder / uuid.uuid4().hex
        scratch.append(file, part[nodes])
        return file

    def adjacency(self) -> FileCsr:
        """The adjacency without its weights, which partitioning does not use."""
        return shared_csr(self.csr, self.nodes, False)


class Propagation:
    """A worker's copy of the clusters of a pass, for its tasks on all threads."""

    def __init__(self, folder: Path, job: StreamTask, one_pass: Pass) -> None:
        self._pass, self._csr = one_pass, job.adjacency()
        self._label = _read(folder / "label", np.int32, job.nodes)
        self._weight = _read(folder / "weight", np.int64, one_pass.clusters)
        self._node_weight = np.diff(self._csr.indptr) + one_pass.base
        self._spans = batch_spans(self._csr)
        self.joined = 0
        """Number of batches whose rows have joined the clusters that they chose."""
        self._joining = threading.Lock()

    def choose(self, number: int, rows: tuple[int, int]) -> Ints32:
        """See `StreamTask.choose`; all earlier batches have joined."""
        with self._joining:
            while self.joined < number:
                self._join()
        choice = np.empty(rows[1] - rows[0], np.int32)
        choose_clusters(
            *self._csr.rows(*rows).edges,
            NO_WEIGHTS,
            self._node_weight,
            self._pass.max_weight,
            0.0,
            self._label.reshape(-1, 1),
            self._weight.reshape(-1, 1),
            NONE_DUE,
            0,
            choice,
        )
        return choice

    def _join(self) -> None:
        first, last = self._spans[self.joined]
        chosen = _read(self._pass.chosen(self.joined), np.int32, last - first)
        join_clusters(
            first,
            chosen,
            self._node_weight,
            self._pass.max_weight,
            self._label,
            self._weight,
        )
        self.joined += 1


def _read(path: Path, dtype: type, count: int) -> NDArray[Any]:
    return np.array(scratch.shared(path, dtype, count))
