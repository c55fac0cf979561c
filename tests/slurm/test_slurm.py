"""Runs on a real SLURM cluster of one node: jobs come, go and are cancelled."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import pyarrow.parquet as pq
import pytest

from tests.conftest import published_values, small_settings, wait_until
from tests.slurm.conftest import SETTINGS
from xnq_dist import jobs, pipeline
from xnq_dist.core import cluster
from xnq_dist.core.clusters import slurm as kind
from xnq_dist.core.errors import InfrastructureError, SettingsError
from xnq_dist.core.settings import Settings
from xnq_dist.monitor.progress import watching

ALLOCATION = Path(__file__).parents[2] / "deploy" / "slurm" / "allocation.sh"

GIB = 2**30
LONG = "reservoir.supersteps=6000"
"""Longer than SLURM takes to send a signal: about 40 seconds."""


def slurm_settings(*more: str) -> Settings:
    """Two jobs; their private folder is in HOME, a temporary folder of the test."""
    return small_settings(*SETTINGS, "cluster.kind=slurm", *more)


def same_bits(out: Path, calm: Path) -> bool:
    """Whether shares and embeddings are those of the run in one process."""
    tables = [pq.read_table(run / "embeddings") for run in (out, calm)]
    shares = published_values(out).equals(published_values(calm))
    return shares and tables[0].equals(tables[1])


@pytest.mark.ci
def test_a_run_on_slurm_has_the_bits_of_one_process(slurm, graph, calm, tmp_path):
    modes: dict[str, int] = {}

    def look(*_):
        for folder in tmp_path.glob("xnq-dist-*"):
            files = [folder, *folder.glob("*.pem")]
            modes.update({each.name: each.stat().st_mode & 0o777 for each in files})

    with watching(look):
        jobs.run_all(graph.sources, str(tmp_path / "run"), slurm_settings())
    assert same_bits(tmp_path / "run", calm)
    # Only their owner can read the certificates, which are gone now, as are the jobs.
    assert sorted(modes.values()) == [0o600, 0o600, 0o600, 0o700]
    assert not list(tmp_path.glob("xnq-dist-*"))
    assert not list(tmp_path.glob("slurm-*.out"))
    assert not running(slurm)


def running(slurm: Any) -> list[str]:
    """Numbers of the jobs that run or wait."""
    return slurm("squeue", "--noheader", "--format=%i", "--states=R,PD").split()


@pytest.mark.slurm
def test_a_cancelled_job_is_replaced_and_the_bits_stay(slurm, graph, calm, tmp_path):
    settings = slurm_settings()
    cancelled: list[str] = []

    def strike(what: str, done: int, _total: int) -> None:
        if what == "supersteps" and done >= 12 and not cancelled:
            cancelled.append(running(slurm)[0])
            slurm("scancel", cancelled[0])

    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1s"}),
        pipeline.open_run(str(tmp_path / "run"), graph.sources) as run,
        cluster.open_cluster(settings.cluster) as connection,
        cluster.connect(connection) as client,
    ):
        pipeline.prepare(run, graph.sources, settings)
        first = set(cluster.workers(client))
        pipeline.embed(run, settings, client, strike)
        assert cancelled
        wait_until(lambda: len(cluster.workers(client)) == 2)
        assert set(cluster.workers(client)) != first
        assert cancelled[0] not in running(slurm)
        pipeline.fit_readout(run, settings, client)
        pipeline.posteriors(run, settings, client)
        pipeline.quantify(run, graph.sources, settings, client)
        pipeline.publish(run, settings)
    assert same_bits(tmp_path / "run", calm)


def submit(slurm: Any, graph: Any, out: Path, *options: str) -> str:
    """Submit the script of deploy/slurm as it is; return the job's number."""
    settings = small_settings(*SETTINGS, LONG)
    file = out.with_suffix(".yaml")
    values = settings.model_dump(mode="json", exclude={"cluster"})
    file.write_text(json.dumps(values))
    return slurm(
        *("sbatch", "--parsable", "--output=job.log", "--cpus-per-task=1"),
        *("--mem-per-cpu=1G", *options, str(ALLOCATION), "run"),
        *("--nodes", graph.sources.nodes, "--edges", graph.sources.edges),
        *("--out", str(out), "--config", str(file)),
    )


def finished(slurm: Any, job: str, out: Path) -> str:
    """The log of a job once it has left the queue."""
    log = out.parent / "job.log"
    queued = ("squeue", "--noheader", "--format=%i")
    wait_until(lambda: job not in slurm(*queued), 900, 0.5)
    return log.read_text()


@pytest.fixture(scope="module")
def longer(graph, tmp_path_factory) -> Path:
    """The run of `submit` in one process."""
    out = tmp_path_factory.mktemp("longer") / "run"
    more = (LONG, "cluster.workers=1")
    jobs.run_all(graph.sources, str(out), small_settings(*SETTINGS, *more))
    return out


@pytest.mark.slurm
@pytest.mark.parametrize("ending", ["as written", "signalled", "time limit"])
def test_one_allocation_ends_with_the_same_bits(slurm, graph, longer, tmp_path, ending):
    out = tmp_path / "run"
    # SLURM sends the signal 50 seconds before the limit of one minute.
    limit = ("--time=1", "--signal=B:TERM@50") if ending == "time limit" else ()
    job = submit(slurm, graph, out, *limit)
    if ending == "signalled":
        wait_until(lambda: list(out.glob("checkpoints/step-*/_manifest.json")))
        slurm("scancel", "--batch", "--signal=TERM", job)
    if ending == "time limit":
        log = tmp_path / "job.log"
        wait_until(lambda: log.exists() and "interrupted by SIGTERM" in log.read_text())
        wait_until(lambda: "Restarts=1" in slurm("scontrol", "show", "job", job))
        slurm("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    lines = finished(slurm, job, out)
    assert same_bits(out, longer), lines
    assert lines.count("interrupted by SIGTERM") == (ending != "as written")
    if ending == "signalled":
        (written,) = re.findall(r"checkpoint after superstep (\d+) written", lines)
        assert f"resuming after superstep {written} of" in lines
    assert not list(tmp_path.glob("xnq-dist-*"))


@pytest.mark.slurm
def test_a_cancelled_allocation_stays_cancelled(slurm, graph, tmp_path):
    job = submit(slurm, graph, tmp_path / "run")
    wait_until(lambda: (tmp_path / "run" / "graph").exists())
    slurm("scancel", "--full", job)
    finished(slurm, job, tmp_path / "run")
    assert "JobState=CANCELLED" in slurm("scontrol", "show", "job", job)


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("more", "error", "sentence"),
    [
        (
            ["cluster.slurm.directives=[--partition=none]"],
            SettingsError,
            r"SLURM refuses the jobs \(.*invalid partition.*correct cluster\.slurm",
        ),
        (
            ["cluster.slurm.setup=[echo no such module >&2; exit 3]"],
            InfrastructureError,
            r"worker joined \(job \d+ FAILED NonZeroExitCode: no such module\): check",
        ),
        (
            ["cluster.workers=9", "cluster.slurm.wait=4"],
            InfrastructureError,
            r"of 9 SLURM jobs have started within 4 s: run again later",
        ),
    ],
    ids=["refused", "broken", "queue"],
)
def test_jobs_that_cannot_work_end_in_a_sentence(
    slurm, tmp_path, monkeypatch, more, error, sentence
):
    monkeypatch.setattr(kind, "POLL", 0.5)
    with (
        pytest.raises(error, match=sentence),
        cluster.open_cluster(slurm_settings(*more).cluster),
    ):
        pass
    assert not running(slurm)
    assert not list(tmp_path.glob("xnq-dist-*"))


REFUSES_ONE = """#!/bin/sh
case "$1" in *.sh) mkdir "$HOME/asked" && echo "too many jobs" >&2 && exit 1;; esac
exec /usr/bin/sbatch "$@"
"""
WAITING = """
from tests.slurm.test_slurm import slurm_settings
from xnq_dist.core import cluster
with cluster.open_cluster(slurm_settings().cluster):
    pass
"""


@pytest.mark.slurm
def test_a_job_that_is_not_accepted_ends_the_wait(slurm, tmp_path, monkeypatch):
    (tmp_path / "sbatch").write_text(REFUSES_ONE)
    (tmp_path / "sbatch").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = [sys.executable, "-c", WAITING]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert "its worker joined (not accepted: it wrote no log): check" in done.stderr
    assert "AssertionError" not in done.stderr
    assert not running(slurm)
    assert not list(tmp_path.glob("xnq-dist-*"))


KILLED = """
import os, signal, sys
from tests.slurm.test_slurm import slurm_settings
from xnq_dist.core import cluster
with cluster.open_cluster(slurm_settings("cluster.timeout=10").cluster):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slurm
def test_jobs_of_a_killed_client_end_by_themselves(slurm, tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED], timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL
    wait_until(lambda: not running(slurm))
    # The next run removes the killed one's folder.
    assert len(list(tmp_path.glob("xnq-dist-*"))) == 1
    with cluster.open_cluster(slurm_settings().cluster):
        assert len(list(tmp_path.glob("xnq-dist-*"))) == 1


def test_a_missing_command_or_extra_is_named_before_any_work(
    small_graph, tmp_path, monkeypatch
):
    settings = slurm_settings()
    found: list[object] = [None]
    monkeypatch.setattr(kind.importlib.util, "find_spec", lambda _: found[0])
    with pytest.raises(SettingsError, match=r"pip install 'xnq-dist\[slurm\]'"):
        pipeline.check_sources(small_graph.sources, settings)
    found[0] = object()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match="needs the command sbatch"):
        pipeline.check_sources(small_graph.sources, settings)
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o700)
    missing = slurm_settings(f"cluster.slurm.folder={tmp_path}/none")
    with pytest.raises(SettingsError, match=r"none cannot be written: set cluster\."):
        pipeline.check_sources(small_graph.sources, missing)
    pipeline.check_sources(
        small_graph.sources, slurm_settings(f"cluster.slurm.folder={tmp_path}")
    )


def test_the_plan_takes_the_jobs_memory_from_the_settings(small_graph, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    more = ("cluster.workers=3", "cluster.threads=2", "cluster.memory_limit=700GiB")
    planned = pipeline.estimate(
        small_graph.sources, slurm_settings("partitions=auto", *more)
    )
    assert (planned.workers, planned.threads) == (3, 2)
    assert planned.worker_limit == 700 * GIB


@pytest.mark.parametrize(
    "change",
    [{"workers": "auto"}, {"memory_limit": "auto"}],
    ids=lambda c: next(iter(c)),
)
def test_jobs_need_a_number_and_a_memory(change):
    values = {"kind": "slurm", "workers": 2, "memory_limit": "1GiB"} | change
    with pytest.raises(ValueError, match=r"set the number of jobs, and the memory of"):
        Settings.model_validate({"cluster": values})
