"""The cluster as reported by the scheduler: live workers do not count as lost."""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest

from tests.conftest import (
    SmallGraph,
    own_cluster,
    small_settings,
    wait_until,
    with_graph,
)
from xnq_dist import pipeline
from xnq_dist.core import cluster, waiting
from xnq_dist.core.cluster import Connection
from xnq_dist.core.clusters import local
from xnq_dist.core.config import validate_settings
from xnq_dist.core.errors import ClusterError, InfrastructureError, SettingsError
from xnq_dist.core.leftovers import scratch_folder


def test_workers_stay_known_while_the_client_refreshes_itself(
    thread_client: Any,
) -> None:
    # The client's periodic callback, normally every two seconds, runs all the time.
    there = cluster.workers(thread_client)
    assert len(there) == 2
    memory = cluster.smallest_memory(thread_client)
    done = threading.Event()

    def refresh() -> None:
        while not done.is_set():
            thread_client.sync(thread_client._update_scheduler_info, n_workers=0)

    refreshing = threading.Thread(target=refresh)
    refreshing.start()
    try:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert cluster.workers(thread_client) == there
            assert cluster.smallest_memory(thread_client) == memory
    finally:
        done.set()
        refreshing.join()


@pytest.mark.parametrize("kind", ["auto", "local"])
def test_a_log_handler_shared_with_dask_works_while_a_cluster_is_open(
    kind: str,
) -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    dask_logs = [logging.getLogger(f"distributed.{name}") for name in ("x", "client")]
    program = logging.getLogger("program")
    shared = [logging.getLogger("distributed"), dask_logs[1], program]
    levels = [log.level for log in shared]
    settings = small_settings(f"cluster.kind={kind}", "cluster.workers=1").cluster
    try:
        for log in shared:
            log.addHandler(handler)
            log.setLevel(logging.WARNING)  # another cluster may be open
        with cluster.open_cluster(settings):
            program.warning("the program's")
            for log in dask_logs:
                log.error("hidden")
        dask_logs[0].error("Dask's")
    finally:
        for log, level in zip(shared, levels, strict=True):
            log.removeHandler(handler)
            log.setLevel(level)
    assert lines.getvalue() == "the program's\nDask's\n"


def test_workers_join_with_their_imports_done_and_the_profiler_off() -> None:
    # A module that the test does not import, in the worker's process.
    settings = small_settings("cluster.kind=local", "cluster.workers=1").cluster
    with (
        dask.config.set({"distributed.worker.profile.enabled": True}),
        own_cluster(settings) as client,
    ):
        (found,) = client.run(_imported).values()
        (callbacks,) = client.run(_periodic).values()
        (small,) = client.run(_new_pages, 1 << 17).values()
    assert "heartbeat" in callbacks
    assert "profile" not in callbacks
    # A megabyte has 256 pages; Dask's own value makes all of them new every time.
    assert small < 19 * 256 / 2
    assert {"xnq_dist.readout.plus.trees", "xnq_dist.reservoir.kernels"} <= set(found)


def _periodic(dask_worker: Any) -> list[str]:
    return [*dask_worker.periodic_callbacks]


def _new_pages(numbers: int) -> int:
    """New pages for nineteen arrays, one after another, after a first one."""
    import resource

    import numpy as np

    np.ones(numbers)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(19):
        np.ones(numbers)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def _imported() -> list[str]:
    import sys

    return [name for name in sys.modules if name.startswith(("sklearn.", "xnq_dist."))]


def test_local_clusters_have_credentials_of_their_own(
    cluster_connection: Connection,
) -> None:
    assert cluster_connection.address.startswith("tls://")
    shown = repr(cluster_connection)
    assert shown == f"Connection(address='{cluster_connection.address}')"
    with cluster.connect(cluster_connection) as client:
        assert all(cluster.startswith("tls://") for cluster in cluster.workers(client))
        assert "PRIVATE KEY" not in repr(client)


def test_a_client_without_certificates_is_refused_in_a_sentence(
    cluster_connection: Connection,
) -> None:
    bare = Connection(cluster_connection.address.replace("tls://", "tcp://"))
    with (
        pytest.raises(InfrastructureError, match="scheduler with TLS needs a tls://"),
        cluster.connect(bare, timeout=3),
    ):
        pass


def test_three_settings_open_a_cluster_of_ones_own(
    tls_settings: dict[str, str], small_graph: SmallGraph
) -> None:
    settings = validate_settings({"cluster": tls_settings})
    pipeline.check_sources(small_graph.sources, settings)
    assert pipeline.estimate(small_graph.sources, settings).partitions == 2
    with own_cluster(settings.cluster) as client:
        assert len(cluster.workers(client)) == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tls_ca": None, "tls_cert": None, "tls_key": None}, "needs certificates"),
        ({"tls_cert": "/nowhere.pem"}, r"cannot be used \(.*No such file"),
        ({"tls_ca": __file__}, "cannot be used .*PEM"),
        ({"tls_key": "CERT"}, "cannot be used .*cluster.tls_key is the key to"),
        ({"tls_key": None}, "belong together: set all three"),
        ({"address": "tcp://127.0.0.1:1"}, "tls://host:port"),
        ({"kind": "local", "address": None}, "create their credentials"),
        ({"address": "tls://me:word@127.0.0.1:1"}, "takes no user name or password"),
    ],
)
def test_certificates_that_do_not_fit_are_refused_before_anything_runs(
    tls_settings: dict[str, str],
    small_graph: SmallGraph,
    change: dict[str, str | None],
    sentence: str,
) -> None:
    change = {
        k: tls_settings["tls_cert"] if v == "CERT" else v for k, v in change.items()
    }
    with pytest.raises(SettingsError, match=sentence) as told:
        pipeline.check_sources(
            small_graph.sources, validate_settings({"cluster": tls_settings | change})
        )
    assert "word" not in str(told.value).replace("password", "")


def test_certificates_of_dasks_own_configuration_serve_as_well(
    tls_settings: dict[str, str],
) -> None:
    import dask

    bare = {name: tls_settings[name] for name in ("kind", "address")}
    configured = {
        "distributed.comm.tls.ca-file": tls_settings["tls_ca"],
        "distributed.comm.tls.client.cert": tls_settings["tls_cert"],
        "distributed.comm.tls.client.key": tls_settings["tls_key"],
    }
    settings = validate_settings({"cluster": bare}).cluster
    with (
        dask.config.set(configured),
        cluster.connect(cluster.connection_to(settings)) as client,
    ):
        assert len(cluster.workers(client)) == 2


def test_run_directories_and_temporary_folders_are_their_owners_alone(
    small_graph: SmallGraph, tmp_path: Path
) -> None:
    new, shared = tmp_path / "a" / "new", tmp_path / "shared"
    shared.mkdir(mode=0o755)
    for out in (new, shared):
        with_graph(out, small_graph.sources, small_settings("partitions=1"))
    assert mode(new) == 0o700
    # If the parent directory is readable for others, so are its files.
    assert (mode(shared), mode(shared / "graph")) == (0o755, 0o755)
    with scratch_folder(str(tmp_path)) as folder:
        assert mode(folder) == 0o700


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


def test_a_worker_that_stops_at_its_start_ends_with_the_cluster(monkeypatch):
    monkeypatch.setattr(local, "START", 0.0)
    stopped, before = [], multiprocessing.active_children()

    def stop() -> None:
        def new() -> list[Any]:
            return [p for p in multiprocessing.active_children() if p not in before]

        wait_until(new, 30, 0.01)
        stopped.append(new()[0].pid)
        os.kill(stopped[0], signal.SIGSTOP)

    thread = threading.Thread(target=stop)
    thread.start()
    settings = small_settings("cluster.workers=2", "cluster.timeout=4").cluster
    with (
        pytest.raises(InfrastructureError, match=r"no answer in time.*run again"),
        cluster.open_cluster(settings),
    ):
        pass
    thread.join(30)
    assert stopped
    wait_until(lambda: not psutil.pid_exists(stopped[0]), 10, 0.05)


def test_workers_that_cannot_start_are_named_with_their_cause(monkeypatch):
    def start(*_: Any) -> None:
        # As Dask does: its own error names no cause.
        raise RuntimeError("Nanny failed to start.") from OSError(
            "Read-only file system"
        )

    monkeypatch.setattr(local, "start", start)
    settings = small_settings("cluster.workers=2").cluster
    words = r"\(Read-only file system\): run again.*cluster.workers=1"
    with (
        pytest.raises(InfrastructureError, match=words),
        cluster.open_cluster(settings),
    ):
        pass


def test_workers_lost_during_a_wait_are_logged_once(monkeypatch, caplog):
    seen = [{"tcp://a": 1, "tcp://bb": 1}, {"tcp://a": 1}, {"tcp://a": 1, "tcp://c": 1}]
    monkeypatch.setattr(waiting, "workers", lambda _: seen.pop(0))
    beats = waiting.Heartbeats(None)
    while seen:
        beats.look()
    assert caplog.messages == ["lost tcp://bb; workers left: 1"]


def test_workers_lost_during_a_question_are_left_out(client, monkeypatch):
    answers = {"tcp://a:1": OSError("Stream is closed"), "tcp://b:1": "0.0.1"}
    monkeypatch.setattr(cluster, "run_on_workers", lambda *_: answers)
    with pytest.raises(ClusterError, match=r"tcp://b:1 has xnq-dist 0\.0\.1"):
        cluster._check_versions(client)
    answers["tcp://b:1"] = cluster.__version__
    cluster._check_versions(client)
