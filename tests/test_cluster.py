"""The cluster as the scheduler tells it: no worker is taken for lost that is there."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

from tests.conftest import small_settings
from xnq_dist import cluster


def test_workers_seem_lost_while_the_client_refreshes_itself(
    thread_client: Any,
) -> None:
    # What the client's own clock does every two seconds, here all the time.
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


def test_workers_have_imported_before_they_join() -> None:
    # A module that a test would not import by itself, in the worker's process.
    settings = small_settings("cluster.workers=1").cluster
    with (
        cluster.open_cluster(settings, preload="xnq_dist.preload") as connection,
        cluster.connect(connection) as client,
    ):
        (found,) = client.run(_imported).values()
    assert {"sklearn.ensemble", "xnq_dist.reservoir.kernels"} <= set(found)


def _imported() -> list[str]:
    import sys

    return [name for name in sys.modules if name.startswith(("sklearn.", "xnq_dist."))]


def test_memory_that_the_client_is_yet_to_take_is_not_given_to_workers(
    monkeypatch: Any,
) -> None:
    free = 10 * 2**30
    monkeypatch.setattr(
        cluster.psutil, "virtual_memory", lambda: SimpleNamespace(available=free)
    )
    settings = small_settings("cluster.workers=2").cluster
    assert cluster.local_size(settings).memory == int(0.9 * free) // 2
    kept = cluster.local_size(settings, kept=free // 2).memory
    assert kept == int(0.9 * (free - free // 2)) // 2
    # More than there is: the plan refuses it in a sentence; no size below nothing.
    assert cluster.local_size(settings, kept=2 * free).memory > 0
