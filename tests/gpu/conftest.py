"""Backends of parametrised tests: CPU, a stand-in for a GPU, a GPU."""

from __future__ import annotations

import shutil
import warnings

import pytest

from xnq_dist.core import backend as backends

REAL = backends.gpu
"""The GPU itself: tests put makers of devices in the function's place."""


def make_backend(kind: str, precision: str = "float32") -> backends.Backend:
    """The backend; skips with the missing requirement."""
    if kind == "cpu":
        return backends.cpu()
    if kind == "standin":
        if shutil.which("g++") is None:
            pytest.skip("the stand-in for a GPU needs g++")
        from tests.gpu.standin import standin

        return standin(precision)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns about missing drivers
        reason = backends.gpu_facts().reason
    if reason:
        pytest.skip(reason)
    return REAL(precision)


DEVICES = [
    pytest.param("standin", id="standin-on-cpu"),
    pytest.param("gpu", marks=pytest.mark.gpu, id="gpu"),
]


@pytest.fixture(params=DEVICES)
def device(request):
    """Makes device backends by precision; the stand-in uses g++ and NumPy."""
    return lambda precision="float32": make_backend(request.param, precision)


@pytest.fixture(params=["cpu", *DEVICES])
def any_backend(request):
    """Every backend in float32."""
    return make_backend(request.param)


@pytest.fixture
def device_line(request, monkeypatch):
    """The client of a cluster whose workers have a device or the stand-in.

    Workers of the stand-in are threads of this process, in which it replaces the GPU.
    """
    if request.param == "gpu":
        make_backend("gpu")
        return request.getfixturevalue("client")
    play_a_gpu(monkeypatch)
    return request.getfixturevalue("thread_client")


def play_a_gpu(monkeypatch) -> None:
    """Replace the GPU by the stand-in in this process."""
    make_backend("standin")
    from tests.gpu.standin import places

    for module, name, value in places():
        monkeypatch.setattr(module, name, value)
