"""Both ends of every route find the same block; blocks are read once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graph.graphs import cut
from xnq_dist.graph.halo import PartitionBook
from xnq_dist.reservoir.mailbox import Mailbox
from xnq_dist.reservoir.routes import find_routes


def small_cut(seed: int, partitions: int):
    rng = np.random.default_rng(seed)
    nodes = 40
    degree = rng.integers(0, 5, nodes)
    indptr = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    indices = rng.integers(0, nodes, indptr[-1]).astype(np.int32)
    book = PartitionBook.of(
        rng.integers(0, partitions, nodes).astype(np.int32), partitions
    )
    return cut(indptr, indices, None, book), book


@given(
    seed=st.integers(0, 10_000),
    partitions=st.integers(1, 6),
    workers=st.integers(1, 3),
)
def test_every_halo_row_comes_from_its_owner_by_some_route(seed, partitions, workers):
    parts, book = small_cut(seed, partitions)
    rng = np.random.default_rng(seed)
    placement = [f"w{rng.integers(workers)}" for _ in parts]
    routes = {
        worker: find_routes(
            {p.number: p for p in parts if placement[p.number] == worker},
            book.offsets,
            placement,
        )
        for worker in set(placement)
    }
    # A state of one column: the node's global id.
    for part in parts:
        found = np.full((part.n_halo, 1), -1, np.float32)
        here = routes[placement[part.number]]
        at = 0
        for owner, picks in here.picks[part.number].items():
            states = np.arange(book.offsets[owner], book.offsets[owner + 1])
            block = states
            if owner in here.arrivals:
                sent = routes[placement[owner]].sends[owner][placement[part.number]]
                assert len(sent) == len(np.unique(sent)) == here.arrivals[owner]
                block = states[sent]
            found[at : at + len(picks), 0] = block[picks]
            at += len(picks)
        np.testing.assert_array_equal(found[:, 0], part.halo)
    # Every block that is sent is also expected.
    assert sum(r.rows_sent for r in routes.values()) == sum(
        sum(r.arrivals.values()) for r in routes.values()
    )


def block(rows: int, columns: int, value: float, dtype: str = "float32"):
    return np.full((rows, columns), value, dtype)


def test_blocks_are_read_once_they_are_there():
    mail = Mailbox({4: 5, 7: 2}, 3)
    assert mail.wait(0, 0, 0.01) == []
    assert mail.missing(0, [4, 7]) == [4, 7]
    mail.put(0, 7, block(2, 3, 1, "float16"))
    assert mail.wait(0, 0, 0.01) == [7]
    assert mail.wait(0, 1, 0.01) == []
    mail.put(0, 4, block(5, 3, 2, "float16"))
    assert mail.wait(0, 1, 0.01) == [4]
    assert mail.wait(0, 0, 0.01) == [7, 4]
    assert mail.read(0, 4).dtype == np.float16
    assert set(mail.read(0, 4).ravel()) == {2}


def test_a_sender_is_let_one_generation_ahead_and_no_further():
    mail = Mailbox({0: 1}, 2)
    told: list[int] = []
    mail.on_reach = lambda: told.append(mail.generation)
    assert mail.admits(1)
    assert not mail.admits(2)
    mail.put(0, 0, block(1, 2, 1))
    with pytest.raises(
        ConnectionError, match="block of partition 0, generation 2: gen"
    ):
        mail.put(2, 0, block(1, 2, 1))
    mail.reach(1)
    assert told == [1]
    assert mail.admits(2)
    # Old blocks are dropped, and late blocks are not read.
    mail.put(0, 0, block(1, 2, 1))
    assert mail.missing(1, [0]) == [0]


def test_unexpected_blocks_are_refused():
    """A block twice, of another shape, or of a partition that is not read."""
    mail = Mailbox({0: 2}, 3)
    mail.put(0, 0, block(2, 3, 0))
    refused = (0, block(2, 3, 1)), (0, block(2, 2, 1)), (3, block(2, 3, 1))
    for owner, wrong in refused:
        with pytest.raises(ConnectionError, match="unexpected block"):
            mail.put(0, owner, wrong)
    assert set(mail.read(0, 0).ravel()) == {0}
