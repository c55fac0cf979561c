"""The same bits on every processor: one small run under several BLAS kernels.

The first process also compiles our kernels for AVX2 only, as on a processor without
AVX-512.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import write_graph
from tests.processors import embed
from xnq_dist.graph.sources import Sources

KERNELS = {
    "Haswell": "avx2",
    "Zen": "avx2",
    "SkylakeX": "avx512f",
    "Sandybridge": "avx",
}
"""Kernels of OpenBLAS, and what a processor must have to run them."""
AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+64bit,+cx16,+fxsr,+mmx,+sse,+sse2,+sse3,+ssse3,+sse4.1,"
    "+sse4.2,+popcnt,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe",
}
LINUX = Path("/proc/cpuinfo")


def lacks(flag: str) -> bool:
    flags = LINUX.read_text().split() if LINUX.exists() else []
    return flag not in flags


def results(graph: Path, out: Path, *more: str, **environment: str):
    """Arrays computed by a new process."""
    command = [sys.executable, "-m", "tests.processors", str(graph), str(out), *more]
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(out / "arrays.npz") as found:
        return dict(found)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processors") / "graph"
    write_graph(folder)
    return folder


@pytest.fixture(scope="module")
def first(graph, tmp_path_factory):
    """Results under Haswell's kernels."""
    if lacks("avx2"):
        pytest.skip("this processor lacks avx2: OpenBLAS's Haswell kernels not run")
    folder = tmp_path_factory.mktemp("first")
    setting = {"OPENBLAS_CORETYPE": "Haswell", **AVX2}
    setting["NUMBA_CACHE_DIR"] = str(folder / "kernels")
    found = results(graph, folder / "out", **setting)
    assert "Haswell" in found["blas"]
    return found


def test_an_embedding_has_the_same_bits_under_other_kernels(
    graph, thread_client, tmp_path
):
    """One pass of the long group `processors`."""
    if lacks("avx2"):
        pytest.skip("this processor lacks avx2: OpenBLAS's Haswell kernels not run")
    found = results(graph, tmp_path / "there", "--dense", OPENBLAS_CORETYPE="Haswell")
    assert "Haswell" in found["blas"]
    sources = Sources(str(graph / "nodes.parquet"), str(graph / "edges.parquet"))
    cut = ("reservoir.matrix=dense", "partitions=2")
    here = embed(tmp_path / "here", sources, thread_client, *cut)
    np.testing.assert_array_equal(found["dense 3"], here)


@pytest.mark.processors
def test_embeddings_are_the_same_bits_in_any_number_of_partitions(first):
    assert not (first["dense 1"] == first["sparse 1"]).all()
    for matrix in ("dense", "sparse"):
        one, three = first[f"{matrix} 1"], first[f"{matrix} 3"]
        np.testing.assert_array_equal(one, three)


@pytest.mark.processors
@pytest.mark.parametrize("kernel", list(KERNELS)[1:])
def test_another_processor_has_the_same_bits(kernel, first, graph, tmp_path):
    if lacks(KERNELS[kernel]):
        pytest.skip(
            f"this processor lacks {KERNELS[kernel]}: OpenBLAS's {kernel} kernels not "
            "run"
        )
    found = results(graph, tmp_path / "out", OPENBLAS_CORETYPE=kernel)
    # OpenBLAS has the same kernels for Zen as for Haswell.
    assert {"Zen": "Haswell"}.get(kernel, kernel) in found["blas"]
    for name in ("dense 1", "dense 3", "sparse 1", "sparse 3", "plus"):
        np.testing.assert_array_equal(found[name], first[name], name)
    # The readout is fitted with the BLAS in float64: near, not promised to be equal.
    for name in ("posteriors", "prevalence", "lower", "upper"):
        np.testing.assert_allclose(found[name], first[name], 1e-5, 1e-6, name)
