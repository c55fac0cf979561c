"""SLURM for the tests of this folder, and a run without it to compare with."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import pytest

from tests.conftest import SmallGraph, small_settings, write_graph
from tests.slurm.daemons import missing, slurm_cluster
from xnq_dist import jobs

Call = Callable[..., str]

SETTINGS = (
    "partitions=4",
    "reservoir.supersteps=40",
    "checkpoint.every=10",
    "cluster.memory_limit=1GiB",
)


@pytest.fixture(scope="session")
def slurm_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """A running SLURM cluster: the environment for its commands."""
    why = missing()
    if importlib.util.find_spec("dask_jobqueue") is None:
        why = "the extra `slurm` is not installed"
    if why:
        pytest.skip(why)
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as environment:
        programs = Path(sys.executable).parent
        yield environment | {"PATH": f"{programs}:{environment['PATH']}"}


@pytest.fixture
def slurm(slurm_environment: dict[str, str], monkeypatch, tmp_path) -> Iterator[Call]:
    """SLURM as this process's cluster; calls a command and returns what it wrote."""
    for name, value in slurm_environment.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))

    def call(*command: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    # Its defaults must be there before the setting, whose end would remove them, too.
    importlib.import_module("dask_jobqueue")
    # The daemons have no other network; the variable is for processes that start.
    monkeypatch.setenv("DASK_JOBQUEUE__SLURM__INTERFACE", "lo")
    with dask.config.set({"jobqueue.slurm.interface": "lo"}):
        yield call
    call("scancel", "--user=root", "--signal=KILL")


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> SmallGraph:
    return write_graph(tmp_path_factory.mktemp("graph"), nodes=800, edges=3000)


@pytest.fixture(scope="session")
def calm(graph: SmallGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a run in one process."""
    out = tmp_path_factory.mktemp("calm") / "run"
    single = small_settings(*SETTINGS, "cluster.workers=1")
    jobs.run_all(graph.sources, str(out), single)
    return out
