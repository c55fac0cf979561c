"""Fixtures shared by all tests: small graphs on disk, a real Dask cluster."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xnq_dist.app.environment import prepare_environment
from xnq_dist.core.cluster import Connection, connect, open_cluster
from xnq_dist.core.config import load_settings
from xnq_dist.core.sections import ClusterSettings
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.sources import Sources

# Processes of tests import modules of tests.
os.environ.setdefault("PYTHONSAFEPATH", "")
prepare_environment()

# As in clusters of `open_cluster`, for those that tests and their processes start.
os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "False"

# No test depends on time, so that none fails on a busy machine.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@dataclass(frozen=True)
class SmallGraph:
    """A graph as input tables and as arrays in canonical order."""

    sources: Sources
    features: np.ndarray
    edges: np.ndarray
    """Directed, shape (M, 2): source, target."""
    labels: np.ndarray
    """-1 when unlabelled."""


def write_graph(
    folder: Path,
    nodes: int = 600,
    edges: int = 2500,
    features: int = 5,
    classes: int = 2,
    labelled: float = 0.5,
    seed: int = 0,
    weighted: bool = False,
) -> SmallGraph:
    """Two noisy blocks per class, written as nodes and edges (directed rows)."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, nodes)
    x = rng.standard_normal((nodes, features)).astype(np.float32)
    x[:, 0] += truth
    source = rng.integers(0, nodes, 4 * edges)
    target = rng.integers(0, nodes, 4 * edges)
    keep = (truth[source] == truth[target]) | (rng.random(4 * edges) < 0.2)
    pairs = np.unique(np.stack([source, target], axis=1)[keep][:edges], axis=0)
    labels = np.where(rng.random(nodes) < labelled, truth, -1)
    folder.mkdir(parents=True, exist_ok=True)
    flat = pa.array(x.ravel())
    pq.write_table(
        pa.table(
            {
                "node_id": pa.array(np.arange(nodes, dtype=np.int64)),
                "label": pa.array(labels.astype(np.int64), mask=labels < 0),
                "features": pa.FixedSizeListArray.from_arrays(flat, features),
            }
        ),
        folder / "nodes.parquet",
    )
    columns = {"src": pairs[:, 0], "dst": pairs[:, 1]}
    if weighted:
        columns["weight"] = rng.random(len(pairs)).astype(np.float32)
    pq.write_table(pa.table(columns), folder / "edges.parquet")
    sources = Sources(str(folder / "nodes.parquet"), str(folder / "edges.parquet"))
    return SmallGraph(sources, x, pairs, labels)


@pytest.fixture(autouse=True)
def package_log() -> Iterator[None]:
    """A command sets up the package's log lines for its process: undo that."""
    log = logging.getLogger("xnq_dist")
    before = [*log.handlers], log.level, log.propagate
    yield
    log.handlers, level, log.propagate = before
    log.setLevel(level)


@pytest.fixture
def no_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second stage of xnq+ without boosted trees, which take most of its time."""
    monkeypatch.setattr("xnq_dist.readout.plus.learning.MIN_FOR_TREES", 10**9)


def small_settings(*overrides: str) -> Settings:
    """Settings of a small, fast run of plain XNQ with fixed scales."""
    base = [
        "method=xnq",
        "quantifier=sld",
        "backend=cpu",
        "reservoir.dim=24",
        "reservoir.supersteps=6",
        "reservoir.recurrent_scale=2.0",
        "reservoir.input_scale=0.5",
        "input.directed=true",
        "readout.C=1.0",
        "cluster.workers=2",
        "cluster.threads=1",
    ]
    return load_settings(overrides=[*base, *overrides])


def flip(path: Path | str, at: int | None = None) -> None:
    """Change a bit of a file in place: of its middle, or at a byte."""
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    Path(path).write_bytes(data)


def with_graph(
    out: Path | str, sources: Sources, settings: Settings, overwrite: bool = False
) -> RunDirectory:
    """A run directory with the stages ``graph`` and ``labels``."""
    # Above it would be imported before the environment is prepared.
    from xnq_dist import pipeline

    with pipeline.open_run(str(out), sources, overwrite) as run:
        pipeline.prepare(run, sources, settings)
    return run


def wait_until(
    holds: Callable[[], object], seconds: float = 240, every: float = 0.1
) -> None:
    """Wait until a condition holds; fail after a number of seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(every)


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def started(
    *command: str | Path, env: dict[str, str] | None = None, **more: Any
) -> subprocess.Popen[bytes]:
    """A process without input, whose output is not kept."""
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return subprocess.Popen(command, env=env, **quiet | more)


def published_values(out: Path | str, table: str = "prevalence") -> pa.Table:
    """A published table at its usual path, without the column run_id."""
    return pq.read_table(Path(out, f"{table}.parquet")).drop_columns("run_id")


@pytest.fixture(scope="session")
def cluster_connection() -> Iterator[Connection]:
    """A scheduler with two worker processes."""
    with open_cluster(small_settings().cluster) as connection:
        yield connection


@contextmanager
def own_cluster(settings: ClusterSettings) -> Iterator[Any]:
    """The client of a cluster that nobody else uses."""
    with open_cluster(settings) as connection, connect(connection) as client:
        yield client


@pytest.fixture(scope="session")
def tls_settings(
    cluster_connection: Connection, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Settings of a user with an existing cluster."""
    folder = tmp_path_factory.mktemp("certificates")
    security = cluster_connection.security
    texts = {
        "tls_ca": security.tls_ca_file,
        "tls_cert": security.tls_client_cert,
        "tls_key": security.tls_client_key,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {"kind": "address", "address": cluster_connection.address} | {
        name: str(folder / name) for name in texts
    }


@contextmanager
def thread_workers(workers: int, threads: int = 2) -> Iterator[object]:
    """The client of workers as threads of this process, so that coverage includes
    their code."""
    from distributed import Client, LocalCluster

    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=False,
            scheduler_kwargs=quiet,
            silence_logs=False,  # it would silence pytest's log handlers
        ) as cluster,
        Client(cluster, set_as_default=False) as found,
    ):
        yield found


@pytest.fixture(scope="session")
def thread_client() -> Iterator[object]:
    """The client of two workers as threads of this process."""
    with thread_workers(2) as found:
        yield found


@pytest.fixture
def client(cluster_connection: Connection) -> Iterator[object]:
    """A client of the session's cluster."""
    with connect(cluster_connection) as found:
        yield found


@pytest.fixture
def small_graph(tmp_path: Path) -> SmallGraph:
    """600 nodes, 2,500 directed edges, half of the nodes labelled."""
    return write_graph(tmp_path / "input")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real graphs."""
    named = os.environ.get("XNQ_DATA_DIR")
    if not named or not Path(named).is_dir():
        pytest.skip("XNQ_DATA_DIR does not name the folder of real graphs")
    return Path(named)


GROUPS = {
    "gpu": "needs a CUDA GPU and CuPy",
    "data": "needs XNQ_DATA_DIR",
    "oracle": "needs the extra `oracle`",
    "gnn": "needs the extra `gnn`",
    "ci": "long: ask with -m ci",
    "faults": "long: ask with -m faults",
    "server": "long: ask with -m server",
    "standin": "long: ask with -m standin",
    "processors": "long: ask with -m processors",
    "browser": "long: ask with -m browser; needs Chromium",
    "slow": "long: ask with -m slow",
    "slurm": "long: ask with -m slurm; needs root, slurm-wlm, munge, dask-jobqueue",
}
"""Optional groups of tests, and what they need or how to run them."""


def rest_in(group: str, values: Iterable[object], *kept: object) -> list[object]:
    """Values of a parameter: `kept` in every test run, the others in a long group."""
    mark = getattr(pytest.mark, group)
    return [
        value if value in kept else pytest.param(value, marks=mark) for value in values
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Record the groups of each test for the summary."""
    for item in items:
        # With the report, which may come from another process; its keywords hold names
        # of folders too.
        item.user_properties += [
            ("group", group) for group in GROUPS if item.get_closest_marker(group)
        ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which optional groups ran and which did not."""
    terminalreporter.section("optional groups")
    for group, need in GROUPS.items():
        counts = {
            outcome: sum(
                ("group", group) in map(tuple, report.user_properties)
                for report in terminalreporter.stats.get(outcome, [])
                if isinstance(report, pytest.TestReport)
            )
            for outcome in ("passed", "failed", "skipped")
        }
        ran = counts["passed"] + counts["failed"]
        state = f"ran {ran}" if ran else "did not run"
        terminalreporter.write_line(
            f"{group:<10} {state}, skipped {counts['skipped']} ({need})"
        )
