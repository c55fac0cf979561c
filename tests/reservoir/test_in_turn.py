"""Reservoirs that do not fit together run one after the other, with the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import SmallGraph, flip, small_settings, with_graph, write_graph
from tests.reservoir.test_embed import embeddings
from xnq_dist import pipeline
from xnq_dist.core.errors import DamagedError, DoesNotFitError
from xnq_dist.core.need import RunSize
from xnq_dist.core.store import repaired
from xnq_dist.plan import Workers, add_up
from xnq_dist.reservoir import needs
from xnq_dist.reservoir.volume import size_on

SCALES = (
    "reservoir.recurrent_scale=[1, 3, 20]",
    "reservoir.dim=23",
    "reservoir.supersteps=10",
    "checkpoint.every=4",
    "partitions=3",
)


@pytest.fixture(scope="module")
def weighted(tmp_path_factory) -> SmallGraph:
    folder = tmp_path_factory.mktemp("turn") / "input"
    return write_graph(folder, nodes=500, edges=3000, weighted=True)


def prepared(folder: Path, graph: SmallGraph, *overrides: str):
    settings = small_settings(*SCALES, *overrides)
    return with_graph(folder, graph.sources, settings), settings


def size_here(run, settings, client) -> RunSize:
    return size_on(client, settings, run.complete("graph"))


@pytest.fixture
def little_memory(monkeypatch):
    """Let workers have memory for one of the reservoirs, but not for all."""

    def set_for(run, settings, client) -> None:
        size = size_here(run, settings, client)
        together = needs.supersteps_of(size, settings)
        turn = needs._supersteps(size, settings, 8, 3)
        assert (together.turns, together.units) == (1, 23)
        assert turn.worker < together.worker
        beside = size.workers.memory - (turn.worker + together.worker) // 2
        monkeypatch.setattr(needs, "EMBEDDER", beside)
        steps = needs.supersteps_of(size, settings)
        assert (steps.turns, steps.units) == (3, 8)

    return set_for


class StopError(Exception):
    pass


def test_same_bits_as_together(tmp_path, weighted, thread_client, little_memory):
    more = "exchange.dtype=float16", "method=xnq+"
    run, settings = prepared(tmp_path / "together", weighted, *more)
    pipeline.embed(run, settings, thread_client)
    expected = embeddings(run)
    run, settings = prepared(tmp_path / "turn", weighted, *more)
    little_memory(run, settings, thread_client)
    said = []
    made = pipeline.embed(run, settings, thread_client, lambda *it: said.append(it))
    np.testing.assert_array_equal(embeddings(run), expected)
    assert made.facts["units_at_once"] == 8
    assert ("supersteps, reservoir 2 of 3", 10, 10) in said
    assert not (tmp_path / "turn" / "checkpoints").exists()


@pytest.fixture(scope="module")
def expected(tmp_path_factory, weighted, thread_client) -> np.ndarray:
    """Embeddings of the reservoirs together."""
    run, settings = prepared(tmp_path_factory.mktemp("together"), weighted)
    pipeline.embed(run, settings, thread_client)
    return embeddings(run)


def test_goes_on_with_the_reservoir_that_was_interrupted(
    tmp_path, weighted, expected, thread_client, little_memory
):
    run, settings = prepared(tmp_path / "turn", weighted)
    little_memory(run, settings, thread_client)

    def stop(what, done, total):
        if what == "supersteps, reservoir 3 of 3" and done > 8:
            raise StopError

    with pytest.raises(StopError):
        pipeline.embed(run, settings, thread_client, stop)
    kept = sorted(path.name for path in (tmp_path / "turn/checkpoints").iterdir())
    assert kept == [
        "reservoir-0-step-00010",
        "reservoir-1-step-00010",
        "reservoir-2-step-00004",
        "reservoir-2-step-00008",
    ]
    begun = []
    pipeline.embed(run, settings, thread_client, lambda *it: begun.append(it))
    assert begun[0] == ("supersteps, reservoir 3 of 3", 8, 10)
    np.testing.assert_array_equal(embeddings(run), expected)


def test_a_damaged_reservoir_alone_is_run_again(
    tmp_path, weighted, expected, thread_client, little_memory
):
    run, settings = prepared(tmp_path / "turn", weighted)
    little_memory(run, settings, thread_client)
    damaged = tmp_path / "turn/checkpoints/reservoir-1-step-00010"

    def damage(what, done, total):
        if (what, done) == ("supersteps, reservoir 3 of 3", 8):
            flip(next(damaged.glob("state-00001*")), -5)

    with pytest.raises(DamagedError):
        pipeline.embed(run, settings, thread_client, damage)
    assert not damaged.exists()
    begun = []
    embed = lambda: pipeline.embed(  # noqa: E731
        run, settings, thread_client, lambda *it: begun.append(it[0])
    )
    repaired(embed)
    assert set(begun) == {"supersteps, reservoir 2 of 3"}
    np.testing.assert_array_equal(embeddings(run), expected)


def test_the_plan_says_so_or_refuses_with_both_numbers(
    tmp_path, weighted, thread_client, little_memory
):
    run, settings = prepared(tmp_path / "run", weighted)
    size = size_here(run, settings, thread_client)
    assert "reservoirs" not in dict(add_up(size, settings, 3, size.workers).lines())
    little_memory(run, settings, thread_client)
    plan = add_up(size, settings, 3, size.workers)
    assert dict(plan.lines())["reservoirs"].startswith("3, one after the other")
    few = Workers(1, 1, needs.EMBEDDER)
    plan = add_up(size, settings, 3, few)
    with pytest.raises(DoesNotFitError, match=r"needs .* but may use .* one after the"):
        pipeline.check_fits(plan)
