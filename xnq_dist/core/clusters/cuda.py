"""One worker for each GPU of this machine."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from xnq_dist.core.backend import cuda_cluster, gpu_facts, need_cuda
from xnq_dist.core.cluster import DEVICE_SHARE, local_size
from xnq_dist.core.clusters.local import options, started, tls
from xnq_dist.core.need import Workers, parse_bytes
from xnq_dist.core.sections import ClusterSettings

__all__ = ["size", "start"]


def size(settings: ClusterSettings, free: int | None = None) -> Workers:
    """A worker with one thread for each GPU; memory as in `local.size`.

    Raises
    ------
    ClusterError
        When a package or device is missing.
    """
    # If the memory is set, a plan can be made on a machine without a GPU.
    facts = gpu_facts() if settings.device_memory != "auto" else need_cuda()
    count, device = facts.devices or 1, settings.device_memory
    if settings.workers != "auto":
        count = min(facts.devices or settings.workers, settings.workers)
    if device == "auto":
        device = int(facts.memory * DEVICE_SHARE)
    return local_size(settings, count, 1, free, parse_bytes(device))


def start(settings: ClusterSettings, size: Workers, _stack: ExitStack) -> Any:
    """Start a cluster of this machine's GPUs.

    Raises
    ------
    ClusterError
        When a package or device is missing.
    """
    make = partial(
        cuda_cluster,
        **options(size),
        **tls(),
        # The plan manages the device's memory: no spilling, and a bounded pool.
        device_memory_limit=None,
        rmm_pool_size=size.device // 2,
        rmm_maximum_pool_size=size.device,
        rmm_allocator_external_lib_list=["cupy"],
    )
    return started(make, settings)
