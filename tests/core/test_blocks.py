"""The limit of BLAS threads, which belongs to the process."""

import os
import subprocess
import sys
import threading

from threadpoolctl import threadpool_info

from xnq_dist.core.blocks import one_blas_thread


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
from xnq_dist.core.blocks import one_blas_thread
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
