"""Devices of the tests: a stand-in for a GPU, and a GPU if there is one."""

from __future__ import annotations

import shutil
import warnings
from contextlib import contextmanager

import pytest

from tests.conftest import small_settings, thread_workers
from xnq_dist.core import backend as backends
from xnq_dist.core import cluster

REAL = backends.gpu
"""The GPU itself: tests put the stand-in in the function's place."""

DEVICES = [
    pytest.param("standin", id="standin-on-cpu"),
    pytest.param("gpu", marks=pytest.mark.gpu, id="gpu"),
]


def make_backend(kind: str) -> backends.Backend:
    """The backend; skips with the missing requirement."""
    if kind == "cpu":
        return backends.Backend()
    if kind == "standin":
        if shutil.which("g++") is None:
            pytest.skip("the stand-in for a GPU needs g++")
        from tests.gpu.standin import StandinBackend

        return StandinBackend()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns about missing drivers
        reason = backends.gpu_facts().reason
    if reason:
        pytest.skip(reason)
    return REAL()


def play_a_gpu(monkeypatch) -> None:
    """Replace the GPU by the stand-in in this process."""
    make_backend("standin")
    from tests.gpu.standin import places

    for module, name, value in places():
        monkeypatch.setattr(module, name, value)


@pytest.fixture(params=DEVICES)
def device(request):
    """The backend of a device."""
    return make_backend(request.param)


@pytest.fixture(params=DEVICES)
def device_client(request, monkeypatch):
    """The client of two workers that have a device.

    Workers of the stand-in are threads of this process, in which it replaces the GPU.
    """
    if request.param == "gpu":
        make_backend("gpu")
        return request.getfixturevalue("client")
    play_a_gpu(monkeypatch)
    return request.getfixturevalue("thread_client")


@contextmanager
def one_worker(device_client):
    """The client of a single worker with the same device."""
    if not device_client.scheduler.address.startswith("inproc"):
        single = small_settings("cluster.workers=1").cluster
        with (
            cluster.open_cluster(single) as connection,
            cluster.connect(connection) as client,
        ):
            yield client
        return
    with thread_workers(1) as client:
        yield client
