"""Memory that glibc keeps: large arrays use pages that others have freed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from xnq_dist.core.limits import ALLOCATOR

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


pytestmark = pytest.mark.skipif(
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


def test_large_arrays_of_a_thread_use_freed_pages():
    # 64 MiB have 32 pages if they are huge ones.
    assert new_pages("as it is", 64, 19) >= 19 * 32
    assert new_pages("kept", 64, 19) < 19 * 32 / 2


def test_very_large_arrays_use_freed_pages_until_they_are_released():
    assert new_pages("kept", 1280, 1) < 640 / 2
    assert new_pages("as it is", 256, 1, **ALLOCATOR) < 128 / 2
    assert new_pages("released", 256, 1) >= 128
