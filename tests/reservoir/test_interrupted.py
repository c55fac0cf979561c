"""A run that a signal ends: it writes a checkpoint of its last superstep first."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.conftest import SmallGraph, small_settings, with_graph, write_graph
from tests.reservoir.test_embed import embed, embeddings
from xnq_dist import pipeline
from xnq_dist.core import cluster
from xnq_dist.reservoir.exchange import Exchange

OVERRIDES = ("partitions=3", "reservoir.supersteps=60", "checkpoint.every=25")


class Ended(BaseException):
    """What the handler raises, as those of the command line and of Prefect do."""


@pytest.fixture(scope="module")
def weighted(tmp_path_factory) -> SmallGraph:
    return write_graph(tmp_path_factory.mktemp("weighted") / "input", weighted=True)


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def end(*_: object) -> None:
        raise Ended

    before = signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGTERM, before)


def interrupted(run, client, monkeypatch, settings, after: int = 25) -> int:
    """Send SIGTERM while supersteps after this one are under way; return the last one
    that was reported as done."""
    reported = [0]

    def struck(complete):
        def strike(engine):
            if reported[-1] >= after:
                monkeypatch.undo()
                os.kill(os.getpid(), signal.SIGTERM)
            complete(engine)

        return strike

    monkeypatch.setattr(Exchange, "complete", struck(Exchange.complete))
    with pytest.raises(Ended):
        pipeline.embed(run, settings, client, lambda _, k, __: reported.append(k))
    return reported[-1]


def test_resumes_after_the_superstep_under_way_at_the_signal(
    tmp_path, weighted, client, monkeypatch
):
    expected = embeddings(embed(tmp_path / "whole", weighted, client, *OVERRIDES))
    settings = small_settings(*OVERRIDES)
    run = with_graph(tmp_path / "cut", weighted.sources, settings)
    done = interrupted(run, client, monkeypatch, settings)
    begun: list[int] = []
    pipeline.embed(run, settings, client, lambda _, k, __: begun.append(k))
    # The last periodic checkpoint is that of superstep 25.
    assert begun[0] > done >= 25
    np.testing.assert_array_equal(embeddings(run), expected)


@pytest.mark.parametrize(
    "without", ["checkpoint.grace=0", "checkpoint.every=60"], ids=["grace", "every"]
)
def test_without_grace_or_checkpoints_a_signal_ends_the_run_at_once(
    without, tmp_path, weighted, client, monkeypatch
):
    settings = small_settings(*OVERRIDES, without)
    run = with_graph(tmp_path / "run", weighted.sources, settings)
    after = 4 if "every" in without else 25
    interrupted(run, client, monkeypatch, settings, after)
    kept = sorted(path.name for path in tmp_path.glob("run/checkpoints/step-*"))
    assert kept == ([] if "every" in without else ["step-00025"])


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::UserWarning:distributed.*")
def test_a_hung_worker_delays_the_end_by_no_more_than_the_grace(
    tmp_path, weighted, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "xnq_dist")
    settings = small_settings(*OVERRIDES, "checkpoint.grace=3")
    run = with_graph(tmp_path / "run", weighted.sources, settings)
    with (
        cluster.open_cluster(settings.cluster) as connection,
        cluster.connect(connection) as other,
    ):
        (stopped, *_) = other.run(os.getpid).values()
        began: list[float] = []
        complete = Exchange.complete

        def hang(engine):
            if engine.step >= 25 and not began:
                os.kill(stopped, signal.SIGSTOP)
                began.append(time.monotonic())
                raise Ended
            complete(engine)

        monkeypatch.setattr(Exchange, "complete", hang)
        try:
            with pytest.raises(Ended):
                pipeline.embed(run, settings, other)
            assert time.monotonic() - began[0] < 8
        finally:
            os.kill(stopped, signal.SIGCONT)
    assert "no checkpoint was written (the time for it is over)" in caplog.text
    assert [p.name for p in tmp_path.glob("run/checkpoints/*")] == ["step-00025"]
