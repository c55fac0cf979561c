"""Hosts of their own, as network namespaces: links are cut and healed during a run.

The scheduler and two workers are in three namespaces behind a bridge, with TLS; the
client is in the machine's namespace.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import SmallGraph, published_values, small_settings, write_graph
from xnq_dist import jobs
from xnq_dist.core import cluster
from xnq_dist.core.clusters import address
from xnq_dist.core.errors import InfrastructureError
from xnq_dist.core.settings import Settings

pytestmark = [
    pytest.mark.faults,
    pytest.mark.filterwarnings("ignore::UserWarning:distributed.*"),
]

SETTINGS = ("partitions=4", "reservoir.supersteps=40", "checkpoint.every=10")
NETWORK = "10.213.47"
BRIDGE = f"xnqb{os.getpid()}"
HOSTS = ("scheduler", "worker-0", "worker-1")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _namespace(host: str) -> str:
    return f"xnq-{os.getpid()}-{host}"


def link(host: str) -> str:
    """The bridge's end of a host's cable."""
    return f"xnq{os.getpid()}{HOSTS.index(host)}"


def cut(host: str) -> None:
    ip("link", "set", link(host), "down")


def heal(host: str) -> None:
    ip("link", "set", link(host), "up")


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Addresses of three hosts, each in a network namespace."""
    if os.getuid():
        pytest.skip("network namespaces need root")
    found = {host: f"{NETWORK}.{k + 2}" for k, host in enumerate(HOSTS)}
    with ExitStack() as made:

        def make(*words: str, undo: tuple[str, ...] = ()) -> None:
            try:
                ip(*words)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no network namespaces here ({error})")
            if undo:
                made.callback(subprocess.run, ["ip", *undo], check=False)

        make(*f"link add {BRIDGE} type bridge".split(), undo=("link", "del", BRIDGE))
        make(*f"addr add {NETWORK}.1/24 dev {BRIDGE}".split())
        make(*f"link set {BRIDGE} up".split())
        for host, address_of in found.items():
            space, end = _namespace(host), link(host)
            make("netns", "add", space, undo=("netns", "del", space))
            cable = f"link add {end} type veth peer name eth0 netns {space}"
            make(*cable.split(), undo=("link", "del", end))
            make(*f"link set {end} master {BRIDGE} up".split())
            make(*f"-n {space} addr add {address_of}/24 dev eth0".split())
            make(*f"-n {space} link set eth0 up".split())
            make(*f"-n {space} link set lo up".split())
        yield found


@pytest.fixture
def settings(hosts: dict[str, str], tmp_path: Path) -> Iterator[Settings]:
    """Settings of a cluster on the three hosts."""
    from distributed import Security

    security, files = Security.temporary(), {}
    for name in ("ca_file", "scheduler_cert", "scheduler_key"):
        files[name] = tmp_path / f"{name}.pem"
        files[name].write_text(getattr(security, f"tls_{name}"))
    tls = [
        *("--tls-ca-file", str(files["ca_file"])),
        *("--tls-cert", str(files["scheduler_cert"])),
        *("--tls-key", str(files["scheduler_key"])),
    ]
    where = f"tls://{hosts['scheduler']}:8786"
    commands = {
        host: ["worker", where, "--no-nanny", "--nthreads", "1"] for host in HOSTS[1:]
    }
    commands["scheduler"] = ["scheduler", "--port", "8786"]
    chosen = small_settings(
        *SETTINGS,
        *("cluster.kind=address", f"cluster.address={where}", "cluster.timeout=60"),
        f"cluster.tls_ca={files['ca_file']}",
        f"cluster.tls_cert={files['scheduler_cert']}",
        f"cluster.tls_key={files['scheduler_key']}",
    )
    with ExitStack() as started:
        for host in HOSTS:
            own = ["--host", f"tls://{hosts[host]}", "--no-dashboard", *tls]
            if host != "scheduler":
                own += ["--local-directory", str(tmp_path / host)]
            python = ["ip", "netns", "exec", _namespace(host), sys.executable]
            log = started.enter_context((tmp_path / f"{host}.log").open("w"))
            process = started.enter_context(
                subprocess.Popen(
                    [*python, "-m", "dask", *commands[host], *own],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                )
            )
            started.callback(process.kill)
        joined(chosen, 2)
        yield chosen


def joined(settings: Settings, count: int) -> None:
    """Wait until this many workers have joined."""
    end = time.monotonic() + 120
    connection = address.connection_to(settings.cluster)
    with cluster.connect(connection, 60) as client:
        while len(cluster.workers(client)) < count:
            assert time.monotonic() < end, "the workers did not join"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> SmallGraph:
    return write_graph(tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def calm(graph: SmallGraph, tmp_path_factory: pytest.TempPathFactory) -> object:
    """Published values of a run in one process."""
    out = tmp_path_factory.mktemp("calm") / "run"
    single = small_settings(*SETTINGS, "cluster.workers=1")
    jobs.run_all(graph.sources, str(out), single)
    return published_values(out)


def run_with_a_cut(
    graph: SmallGraph, out: Path, settings: Settings, host: str, seconds: float = 600
) -> None:
    """Run; cut a host's link in the embedding, for `seconds` or until the end."""
    timers: list[threading.Timer] = []

    def strike(what: str, done: int, _total: int) -> None:
        if what == "supersteps" and done >= 12 and not timers:
            cut(host)
            timers.append(threading.Timer(seconds, heal, [host]))
            timers[0].start()

    try:
        jobs.run_all(graph.sources, str(out), settings, do=lambda _, work: work(strike))
    finally:
        for timer in timers:
            timer.cancel()
            heal(host)


def with_timeout(settings: Settings, seconds: float) -> Settings:
    changed = settings.cluster.model_copy(update={"timeout": seconds})
    return settings.model_copy(update={"cluster": changed})


@pytest.mark.parametrize("host", ["worker-0", "scheduler"])
def test_a_link_cut_for_seconds_leaves_the_bits_unchanged(
    settings, graph, calm, tmp_path, host
):
    run_with_a_cut(graph, tmp_path / "run", settings, host, seconds=3)
    assert published_values(tmp_path / "run").equals(calm)


def test_other_hosts_do_the_work_of_one_that_is_cut_off(
    settings, graph, calm, tmp_path, caplog
):
    short = with_timeout(settings, 20)
    with caplog.at_level("INFO", logger="xnq_dist"):
        run_with_a_cut(graph, tmp_path / "run", short, "worker-0")
    assert "removed from the cluster, other workers do the work again" in caplog.text
    assert published_values(tmp_path / "run").equals(calm)


def test_a_scheduler_that_is_cut_off_ends_the_run_and_the_next_one_recovers(
    settings, graph, calm, tmp_path, caplog
):
    short = with_timeout(settings, 20)
    with pytest.raises(InfrastructureError, match="run again to resume") as ended:
        run_with_a_cut(graph, tmp_path / "run", short, "scheduler")
    assert ended.value.exit_code == 4
    joined(settings, 1)
    with caplog.at_level("INFO", logger="xnq_dist"):
        jobs.run_all(graph.sources, str(tmp_path / "run"), settings)
    assert "resuming after superstep 10 of 40" in caplog.text
    assert published_values(tmp_path / "run").equals(calm)
