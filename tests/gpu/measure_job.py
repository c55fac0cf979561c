"""A job of the size of Genius for `measure.py`: its time and a profile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.gpu.aims import Row
from tests.gpu.made import (
    Job,
    made_drive,
    made_partition,
    made_posteriors,
    made_weights,
    states_after,
)
from xnq_dist.core.backend import GpuBackend
from xnq_dist.quantify.gpu.sets import GpuSld
from xnq_dist.quantify.interface import NodeTable, Reference
from xnq_dist.readout.logistic import FitJob as Regression
from xnq_dist.readout.logistic import decision, fit_jobs
from xnq_dist.readout.objective import MemoryRows
from xnq_dist.reservoir import device


@dataclass(frozen=True)
class Genius:
    """A job of the size of Genius, without reading tables."""

    job: Job
    backend: GpuBackend

    def run(self) -> dict[str, float]:
        """Embed, fit the readout, quantify; return prevalences and seconds of each."""
        job, backend = self.job, self.backend
        part, weights = made_partition(job), made_weights(job, "dense")
        host = made_drive(job, weights)
        rng = np.random.default_rng(3)
        labels = (host[:, 0] + rng.standard_normal(job.nodes) > 0).astype(np.int32)
        shown = np.sort(rng.choice(job.nodes, job.nodes // 10, replace=False))
        nodes, batch = made_posteriors(job)
        began = time.perf_counter()
        there = device.move_partition(backend, part)
        moved = device.move_weights(backend, weights.recurrent)
        drive = backend.to_device(host)
        after = states_after(backend, there, drive, moved, job.steps)
        states = device.decode(backend.to_host(after))
        embedded = time.perf_counter()
        folds = np.zeros(len(shown), np.int32)
        known = states[shown], labels[shown], folds, 2
        rows = MemoryRows.of(*known, backend=backend)
        (fitted,) = fit_jobs(rows, [Regression((), 1.0)])
        logits = decision(fitted.model, states, os.cpu_count() or 1)
        share = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
        read = time.perf_counter()
        posteriors = np.stack([1 - share, share], axis=1).astype(np.float32)
        table = NodeTable(posteriors, nodes.labels, nodes.out_of_fold, nodes.classes)
        prior = np.bincount(labels[shown], minlength=2) / len(shown)
        GpuSld().estimate(batch, table, Reference(prior))
        done = time.perf_counter()
        return {
            "embed": embedded - began,
            "read out": read - embedded,
            "quantify": done - read,
            "all": done - began,
        }


def part_genius(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """The job with and without compilation of the kernels."""
    work = Genius(job, make("float32"))
    for attempt in ("with compilation", "again"):
        for what, took in work.run().items():
            yield "genius", attempt, what, took, "s"


CALLS = {
    "kernel": "",
    "multiply": "product (cuBLAS)",
    "to_device": "copies to the device",
    "to_host": "copies to the host",
}


@contextmanager
def timed_calls(kind: type[GpuBackend]) -> Iterator[dict[str, list[float]]]:
    """Seconds of every call of such a backend, by name, with synchronisation.

    Work that is normally concurrent is then sequential: shares show where the time is
    spent, but their sum is more than the time of the job.
    """
    found: dict[str, list[float]] = {}

    def timed(name: str, backend: GpuBackend, work: Callable[..., Any]) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            backend.synchronize()
            began = time.perf_counter()
            answer = work(*args, **kwargs)
            backend.synchronize()
            found.setdefault(name, []).append(time.perf_counter() - began)
            return answer

        return call

    before = {name: getattr(kind, name) for name in CALLS}

    def kernel(self: GpuBackend, source: str, name: str, defines: Any = ()) -> Any:
        return timed(
            f"kernel {name}", self, before["kernel"](self, source, name, defines)
        )

    def plain(name: str) -> Any:
        def call(self: GpuBackend, *args: Any) -> Any:
            return timed(CALLS[name], self, partial(before[name], self))(*args)

        return call

    try:
        for name in CALLS:
            setattr(kind, name, kernel if name == "kernel" else plain(name))
        yield found
    finally:
        for name, method in before.items():
            setattr(kind, name, method)


def part_profile(make: Callable[[str], GpuBackend], job: Job) -> Iterator[Row]:
    """The same job, with each kernel and copy timed separately."""
    backend = make("float32")
    work = Genius(job, backend)
    work.run()
    with timed_calls(type(backend)) as found:
        whole = work.run()["all"]
    rest = whole - sum(sum(times) for times in found.values())
    for name, times in found.items():
        yield "profile", "genius", f"{name}, {len(times)} times", sum(times), "s"
    yield "profile", "genius", "all else (readout's arrays, host)", max(rest, 0.0), "s"
    yield "profile", "genius", "all", whole, "s"
