"""Limits of containers: fake trees of control groups, and a real group as root.

Also the memory that glibc keeps: large arrays use pages that others have freed.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import small_settings
from xnq_dist.app.environment import prepare_environment
from xnq_dist.core import limits
from xnq_dist.core.clusters import local
from xnq_dist.core.limits import ALLOCATOR

GIB = 2**30


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes the files of control groups; the machine has 64 processors, 100 GiB."""
    monkeypatch.setattr(limits, "TREE", tmp_path / "cgroup")
    monkeypatch.setattr(limits, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    free = SimpleNamespace(available=100 * GIB)
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)

    def write(membership: str, files: dict[str, object]) -> None:
        (tmp_path / "membership").write_text(membership + "\n")
        for name, value in files.items():
            file = tmp_path / "cgroup" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")

    return write


@pytest.mark.parametrize(
    ("membership", "files", "memory", "processors"),
    [
        pytest.param("0::/", {}, 100, 64, id="no limits"),
        pytest.param(
            "0::/",
            {"memory.max": 8 * GIB, "memory.current": GIB, "cpu.max": "250000 100000"},
            *(7, 3),
            id="a container",
        ),
        pytest.param(
            "0::/",
            {
                "memory.max": 8 * GIB,
                "memory.high": 6 * GIB,
                "memory.current": 3 * GIB,
                "memory.stat": f"anon 9\ninactive_file {2 * GIB}",
                "cpu.max": "max 100000",
            },
            *(5, 64),
            id="files in the cache count as free",
        ),
        pytest.param(
            "0::/pod/box",
            {
                "pod/memory.max": 4 * GIB,
                "pod/memory.current": GIB,
                "pod/cpu.max": "50000 100000",
                "pod/box/memory.max": "max",
                "pod/box/memory.current": GIB,
                "pod/box/cpu.max": "400000 100000",
            },
            *(3, 1),
            id="outer groups",
        ),
        pytest.param(
            "0::/../../seen/from/outside",
            {"memory.max": 2 * GIB, "memory.current": 3 * GIB},
            *(0, 64),
            id="used up",
        ),
        pytest.param(
            "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n1:name=systemd:/\n0::/",
            {
                "memory/memory.limit_in_bytes": 8 * GIB,
                "memory/memory.usage_in_bytes": 2 * GIB,
                "memory/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB}",
                "cpu/cpu.cfs_quota_us": 200000,
                "cpu/cpu.cfs_period_us": 100000,
            },
            *(7, 2),
            id="version 1",
        ),
    ],
)
def test_the_lowest_limit_of_all_groups_holds(
    tree, membership, files, memory, processors
):
    tree(membership, files)
    assert limits.free_memory() == memory * GIB
    assert limits.processors() == processors


def test_workers_and_libraries_keep_to_the_limits_of_a_container(tree, monkeypatch):
    tree(
        "0::/", {"memory.max": 8 * GIB, "memory.current": 0, "cpu.max": "200000 100000"}
    )
    settings = small_settings("cluster.workers=auto", "cluster.threads=auto").cluster
    size = local.size(settings)
    assert (size.count, size.threads) == (2, 1)
    assert size.memory == int(0.9 * 8 * GIB) // 2
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    prepare_environment()
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_libraries_use_all_processors_of_a_machine(tree, monkeypatch):
    tree("0::/", {"cpu.max": "max 100000"})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    prepare_environment()
    assert "OMP_NUM_THREADS" not in os.environ


def test_a_machine_without_control_groups_is_used_completely(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MEMBERSHIP", tmp_path / "none")
    assert limits.free_memory() > 0
    assert limits.processors() == len(os.sched_getaffinity(0))


@pytest.fixture
def group() -> Iterator[Path]:
    """A real control group with 512 MiB."""
    version_1 = Path("/sys/fs/cgroup/memory")
    parent = version_1 if version_1.is_dir() else Path("/sys/fs/cgroup")
    folder = parent / f"xnq-dist-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here ({error.strerror})")
    try:
        name = "memory.limit_in_bytes" if parent == version_1 else "memory.max"
        if not (folder / name).exists():
            pytest.skip("control groups have no memory controller here")
        (folder / name).write_text(str(512 * 2**20))
        yield folder
    finally:
        folder.rmdir()


def test_a_process_in_a_control_group_sees_its_memory(group):
    program = (
        "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "from xnq_dist.core.limits import free_memory; print(free_memory())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(group / "cgroup.procs")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert 300 * 2**20 < int(done.stdout) < 512 * 2**20


NEW_PAGES = """
import resource, sys, threading
import numpy as np
from xnq_dist.core.limits import keep_free_memory, release

size, count, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def make():
    np.ones(size)
    if how == "released":
        release()
    before = pages()
    for _ in range(count):
        np.ones(size)
    print(pages() - before)

if how != "as it is":
    keep_free_memory()
thread = threading.Thread(target=make)
thread.start()
thread.join()
"""


of_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="options of glibc"
)


def new_pages(how: str, mebibytes: int, count: int, **variables: str) -> int:
    """Pages that a process gets for arrays, made one after the other."""
    command = [sys.executable, "-c", NEW_PAGES, str(mebibytes << 17), str(count), how]
    # Dask leaves variables for its workers in the environment.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    done = subprocess.run(
        command, check=True, capture_output=True, env=kept | variables, timeout=120
    )
    return int(done.stdout)


@of_glibc
def test_large_arrays_of_a_thread_use_freed_pages():
    # 64 MiB have 32 pages if they are huge ones.
    assert new_pages("as it is", 64, 19) >= 19 * 32
    assert new_pages("kept", 64, 19) < 19 * 32 / 2


@of_glibc
def test_very_large_arrays_use_freed_pages_until_they_are_released():
    assert new_pages("kept", 1280, 1) < 640 / 2
    assert new_pages("as it is", 256, 1, **ALLOCATOR) < 128 / 2
    assert new_pages("released", 256, 1) >= 128
