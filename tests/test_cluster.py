"""The cluster as the scheduler tells it: no worker is taken for lost that is there."""

from __future__ import annotations

import threading
import time
from typing import Any

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
