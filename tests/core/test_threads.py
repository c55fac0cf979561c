"""Calls and row blocks on threads, work ahead, and the limit of BLAS threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from xnq_dist.core.threads import ahead, for_each_block, one_blas_thread


def blas_threads():
    return [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]


def test_blas_has_one_thread_until_the_last_thread_has_left():
    before = blas_threads()
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with one_blas_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=stay)
    with one_blas_thread():
        assert set(blas_threads()) == {1}
        thread.start()
        assert inside.wait(10)
    # This thread has left; the other one is still inside.
    assert set(blas_threads()) == {1}
    leave.set()
    thread.join()
    assert blas_threads() == before


def test_a_library_loaded_later_has_one_thread_too():
    code = """
import sys
from threadpoolctl import threadpool_info
from xnq_dist.core.threads import one_blas_thread
def threads():
    return [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]
with one_blas_thread():
    count = len(threads())
import scipy.linalg
with one_blas_thread():
    assert len(threads()) > count and set(threads()) == {1}, threads()
"""
    several = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], check=True, env=several, timeout=120)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_every_block_is_processed_once(threads):
    seen = np.zeros(1001, np.int64)

    def work(first, last):
        seen[first:last] += 1

    for_each_block(1001, threads, work, 10)
    for_each_block(0, threads, work, 10)
    assert (seen == 1).all()


@pytest.mark.parametrize("threads", [1, 4])
def test_the_error_of_a_block_is_raised(threads):
    def work(first, last):
        if first == 30:
            raise ValueError("block 30")

    with pytest.raises(ValueError, match="block 30"):
        for_each_block(100, threads, work, 10)


def test_items_come_out_in_order_and_one_is_made_ahead():
    made: list[int] = []

    def numbers():
        for number in range(6):
            made.append(number)
            yield number

    for at, number in enumerate(ahead(numbers())):
        assert number == at
        assert len(made) <= number + 2
    assert len(made) == 6
    assert list(ahead([None, None])) == [None, None]


def test_an_error_while_making_is_raised():
    def broken():
        yield 1
        raise ValueError("second")

    items = ahead(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="second"):
        next(items)


INTERRUPTED = """
import threading
from xnq_dist.core.threads import ahead, map_threads, one_blas_thread

start = threading.Thread.start

def interrupted(thread):
    start(thread)
    raise KeyboardInterrupt

def blas():
    with one_blas_thread():
        pass

threading.Thread.start = interrupted
for work in (blas, lambda: map_threads(abs, range(9), 3), lambda: list(ahead([1]))):
    try:
        work()
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_a_process_ends_after_a_signal_while_a_thread_starts():
    command = [sys.executable, "-c", INTERRUPTED]
    ended = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, 3 * "interrupted\n"), ended.stderr
