"""No state passes through the client, checked by counting its network bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tests.conftest import small_settings, write_graph
from xnq_dist import pipeline
from xnq_dist.core import cluster
from xnq_dist.core.store import RunDirectory


@dataclass
class CountingProxy:
    """Forwards TCP connections to a scheduler and counts every byte."""

    target: tuple[str, int]
    bytes: int = 0
    sockets: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.sockets.append(self._listener)
        self.address = f"tls://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.target)
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(
                    target=self._pump, args=(source, sink), daemon=True
                ).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.bytes += len(data)
                sink.sendall(data)
        except OSError:
            return
        finally:
            sink.close()


@contextmanager
def counting(address: str) -> Iterator[CountingProxy]:
    host, port = address.removeprefix("tls://").split(":")
    proxy = CountingProxy((host, int(port)))
    try:
        yield proxy
    finally:
        for opened in proxy.sockets:
            opened.close()


def bytes_of_an_embedding(folder, graph, connection, dim) -> int:
    """Everything the client sends and receives during the embedding."""
    run = RunDirectory(folder)
    run.folder.create()
    settings = small_settings(f"reservoir.dim={dim}", "partitions=4")
    pipeline.prepare(run, graph.sources, settings)
    with counting(connection.address) as proxy:
        counted = replace(connection, address=proxy.address)
        with cluster.connect(counted) as client:
            pipeline.embed(run, settings, client)
        return proxy.bytes


def test_clients_bytes_are_independent_of_the_states(tmp_path, cluster_connection):
    graph = write_graph(tmp_path / "input", nodes=4000, edges=12000)
    small = bytes_of_an_embedding(tmp_path / "a", graph, cluster_connection, 16)
    large = bytes_of_an_embedding(tmp_path / "b", graph, cluster_connection, 512)
    state = 4000 * 512 * 4
    assert small > 10_000, "the proxy counts nothing"
    # Some replies carry timings of varying length, none carries a row of states.
    assert abs(large - small) < state / 20
    assert large < state / 5
