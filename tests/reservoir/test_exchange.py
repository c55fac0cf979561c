"""The exchange: the same bits for any workers, no endless waits, no leftovers."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from operator import attrgetter

import numpy as np
import psutil
import pytest

from tests.conftest import small_settings, wait_until, with_graph, write_graph
from tests.reservoir.test_embed import embed, embeddings
from tests.reservoir.test_volume import rows_sent
from xnq_dist import pipeline
from xnq_dist.core import cluster
from xnq_dist.reservoir import embed as driver
from xnq_dist.reservoir.exchange import Exchange
from xnq_dist.reservoir.mailbox import POLL, WorkersLost
from xnq_dist.reservoir.states import Supersteps
from xnq_dist.reservoir.wire import Receiver
from xnq_dist.reservoir.worker import WorkerState


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    """Directed and weighted, 600 nodes."""
    return write_graph(tmp_path_factory.mktemp("exchange") / "input", weighted=True)


def test_same_bits_on_workers_that_are_threads(tmp_path, weighted, thread_client):
    """Also: two workers in one process do not get each other's mail."""
    one = embed(tmp_path / "a", weighted, thread_client, "partitions=1")
    found = embed(tmp_path / "b", weighted, thread_client, "partitions=5")
    np.testing.assert_array_equal(embeddings(found), embeddings(one))


def begun(client, folder, graph, *overrides) -> Exchange:
    """A begun exchange over 4 random partitions, most rows on the boundary."""
    cut = ("partitions=4", "partitioner=contiguous", "reservoir.supersteps=30")
    settings = small_settings(*cut, *overrides)
    run = with_graph(folder, graph.sources, settings)
    manifest = run.complete("graph")
    spec = driver.reservoir_spec(settings, manifest.facts, 2.0, 0.5)
    exchange = Exchange(client, manifest)
    exchange.begin(1, Supersteps, spec, 1, None)
    return exchange


def test_bytes_on_the_wire_are_the_plans(tmp_path, client):
    """The kernel's count of every connection between workers, against the plan."""
    graph = write_graph(tmp_path / "input", nodes=3000, edges=9000)
    wide = ("reservoir.dim=200",)
    exchange = begun(client, tmp_path / "a", graph, *wide)
    # Connections are open and the first messages over.
    exchange.advance(2)
    before = received_bytes(client)
    exchange.advance(6)
    exchange.apply(_nothing)
    moved = received_bytes(client) - before
    sends = client.gather(exchange._start(attrgetter("routes.sends")))
    planned = 6 * sum(map(rows_sent, sends)) * 200 * 4
    assert planned > 10_000_000
    assert moved == pytest.approx(planned, rel=0.05)


def test_clients_bytes_are_independent_of_the_states(tmp_path, cluster_connection):
    """Some replies carry timings of varying length, none carries a row of states."""
    graph = write_graph(tmp_path / "input", nodes=4000, edges=12000)
    moved = []
    for dim in (16, 512):
        settings = small_settings(f"reservoir.dim={dim}", "partitions=4")
        run = with_graph(tmp_path / str(dim), graph.sources, settings)
        with cluster.connect(cluster_connection) as client:
            ports = {port_of(cluster_connection.address)}
            before = _received(ports)
            pipeline.embed(run, settings, client)
            moved.append(_received(ports) - before)
    state = 4000 * 512 * 4
    assert moved[0] > 10_000, "nothing is counted"
    assert abs(moved[1] - moved[0]) < state / 20
    assert moved[1] < state / 5


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def received_bytes(client) -> int:
    """Bytes received on connections between the workers, by TCP_INFO, once all are.

    On a busy machine, blocks may be on their way.
    """
    ports = {port_of(address) for address in client.run(os.getpid)}
    counts = [-1]

    def at_rest() -> bool:
        counts.append(sum(client.run(_received, ports).values()))
        # Heartbeats are below a kilobyte.
        return counts[-1] - counts[-2] < 1000 and counts[-2] >= 0

    wait_until(at_rest, 20)
    return counts[-1]


def _received(ports: set[int]) -> int:
    """On this process's connections from or to these ports."""
    total = 0
    for connection in psutil.Process().net_connections("tcp"):
        ends = {end.port for end in (connection.laddr, connection.raddr) if end}
        if not ends & ports or connection.status != "ESTABLISHED":
            continue
        with socket.socket(fileno=os.dup(connection.fd)) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        total += struct.unpack_from("Q", info, 128)[0]  # tcpi_bytes_received
    return total


def _nothing(number, states):
    return None


def test_a_released_task_stops_waiting(tmp_path, weighted, client):
    exchange = begun(client, tmp_path / "a", weighted)
    worker, made = min(exchange._objects.items())
    # Alone it never gets the other worker's blocks.
    alone = exchange._submit(worker, WorkerState.advance, made, 1, 5)
    wait_until(lambda: sum(client.run(_busy).values()) == 1, 20)
    del alone
    wait_until(lambda: sum(client.run(_busy).values()) == 0, 20)
    exchange.close()


@pytest.mark.faults
def test_a_released_task_stops_asking_a_worker_that_hangs(tmp_path, weighted):
    """The answer may take the complete timeout; the thread is free long before."""
    with (
        cluster.open_cluster(small_settings().cluster) as connection,
        cluster.connect(connection, 600.0) as other,
    ):
        exchange = begun(other, tmp_path / "a", weighted)
        alive, hung = sorted(exchange._objects)
        pid = other.run(os.getpid, workers=[hung])[hung]
        os.kill(pid, signal.SIGSTOP)
        try:
            kept = exchange._objects[alive]
            alone = exchange._submit(alive, WorkerState.advance, kept, 1, 5)
            time.sleep(2 * POLL)  # it asks by now
            del alone
            wait_until(lambda: not other.run(_busy, workers=[alive])[alive], 20)
        finally:
            os.kill(pid, signal.SIGCONT)


def _busy(dask_worker):
    return len(dask_worker.active_threads)


def test_supersteps_take_no_fresh_memory_for_states(tmp_path, weighted, client):
    """Two alternating buffers, since new memory costs more than a transfer."""
    exchange = begun(client, tmp_path / "a", weighted)
    before = exchange.apply(_where)
    exchange.advance(1)
    other = exchange.apply(_where)
    assert not set(before) & set(other)
    for _ in range(3):
        exchange.advance(2)
        assert exchange.apply(_where) == other
    exchange.advance(1)
    assert exchange.apply(_where) == before


def _where(number, states):
    return states.ctypes.data


def test_a_broken_connection_ends_the_wait(tmp_path, weighted, client):
    """Both workers live and answer: only the blocks do not come any more."""
    exchange = begun(client, tmp_path / "a", weighted)
    exchange.advance(2)
    client.run(_break_connections)
    try:
        with pytest.raises(WorkersLost, match="accepts no blocks"):
            exchange.advance(6)
    finally:
        client.run(_mend_connections)
    exchange.close()
    wait_until(lambda: sum(client.run(_busy).values()) == 0, 20)


def _break_connections(dask_worker):
    """From now on a connection that brings blocks ends."""

    async def broken(comm, **blocks):
        comm.abort()

    dask_worker.handlers["xnq_blocks"] = broken


def _mend_connections(dask_worker):
    receiver = dask_worker.plugins[Receiver.name]
    dask_worker.handlers["xnq_blocks"] = receiver.xnq_blocks


@pytest.mark.slow
def test_two_runs_on_the_same_threads_proceed_independently(tmp_path, weighted, client):
    one = begun(client, tmp_path / "a", weighted)
    two = begun(client, tmp_path / "b", weighted)
    first, second = sorted(one._objects)
    # Each has the only thread of one worker and needs that of the other.
    crossed = [
        exchange._submit(worker, WorkerState.advance, exchange._objects[worker], 1, 3)
        for exchange, worker in (
            (one, first),
            (two, second),
            (one, second),
            (two, first),
        )
    ]
    one._wait(crossed)
    np.testing.assert_array_equal(*[e.apply(_first_row)[0] for e in (one, two)])


def _first_row(number, states):
    return states[0].copy()


def test_a_new_worker_state_is_kept_apart_from_the_old_one(tmp_path, weighted, client):
    exchange = begun(client, tmp_path / "a", weighted)
    exchange.advance(2)
    exchange.step = 7
    with pytest.raises(WorkersLost, match="is after superstep 3, not 7"):
        exchange.advance(1)


@pytest.mark.filterwarnings("ignore::UserWarning:distributed.*")
def test_a_fault_on_one_worker_ends_the_wait_of_the_other(tmp_path, weighted, client):
    exchange = begun(client, tmp_path / "a", weighted)
    worker, made = min(exchange._objects.items())
    exchange._submit(worker, _break, made).result()
    with pytest.raises((AttributeError, TypeError), match="NoneType"):
        exchange.advance(4)
    exchange.close()
    wait_until(lambda: sum(client.run(_busy).values()) == 0, 20)


def _break(kept):
    """One partition loses its topology: its next superstep fails."""
    kept.work._topology[next(iter(kept.values))] = None


def test_states_stay_on_their_worker(tmp_path, weighted, client):
    exchange = begun(client, tmp_path / "a", weighted)
    kept = next(iter(exchange._objects.values()))
    with pytest.raises(TypeError, match="do not leave their worker"):
        client.submit(_pickled, kept, pure=False).result()


def _pickled(kept):
    return kept.__reduce__()
