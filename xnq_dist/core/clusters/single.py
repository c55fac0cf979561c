"""One worker in this process, for graphs that need no other processes."""

from __future__ import annotations

from typing import Any

from xnq_dist.core.blocks import one_blas_thread
from xnq_dist.core.cluster import LocalSize
from xnq_dist.core.clusters import ClusterKind, local
from xnq_dist.core.settings_sections import ClusterSettings

__all__ = ["RECORDS", "size", "start"]

RECORDS = (
    ClusterKind(name="single", title="this process alone, on all processors", rank=4),
)


def size(settings: ClusterSettings, free: int | None = None) -> LocalSize:
    """One worker with a thread for each processor; memory as in `local.size`."""
    return local.size(settings.model_copy(update={"workers": 1}), free)


def start(settings: ClusterSettings, size: LocalSize, preload: str) -> Any:
    """Start a scheduler and a worker as threads of this process.

    Their messages stay in memory: no port takes work from other processes.
    """
    from distributed import LocalCluster

    class Threads(LocalCluster):
        """A cluster whose BLAS has one thread, as in a worker process."""

        def close(self, timeout: float | None = None) -> Any:
            """Close the cluster; BLAS gets its threads back."""
            try:
                return super().close(timeout)
            finally:
                blas.__exit__(None, None, None)

    blas = one_blas_thread()
    blas.__enter__()
    try:
        return Threads(  # type: ignore[no-untyped-call]
            processes=False, protocol="inproc", **local.options(size)
        )
    except BaseException:
        blas.__exit__(None, None, None)
        raise
