"""Memory that glibc keeps: large arrays use pages that others have freed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

NEW_PAGES = """
import resource, sys, threading
import numpy as np
from xnq_dist.core.allocator import keep_free_memory

def make():
    np.ones(1 << 23)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(19):
        np.ones(1 << 23)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

if sys.argv[1] == "kept":
    keep_free_memory()
thread = threading.Thread(target=make)
thread.start()
thread.join()
"""


def new_pages(how: str) -> int:
    command = [sys.executable, "-c", NEW_PAGES, how]
    # Dask leaves variables for its workers in the environment.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    done = subprocess.run(
        command, check=True, capture_output=True, env=kept, timeout=120
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="options of glibc")
def test_large_arrays_of_a_thread_use_freed_pages():
    # 64 MiB have 32 pages if they are huge ones.
    assert new_pages("as it is") >= 19 * 32
    assert new_pages("kept") < 19 * 32 / 2
