"""The limit of BLAS threads, which belongs to the process."""

import threading

from threadpoolctl import threadpool_info, threadpool_limits
from xnq_dist.blocks import one_blas_thread


def blas_threads():
    return {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}


def test_blas_has_one_thread_until_the_last_thread_has_left():
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with one_blas_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=stay)
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            assert blas_threads() == {1}
            thread.start()
            assert inside.wait(10)
        # This thread has left; the other one is still inside.
        assert blas_threads() == {1}
        leave.set()
        thread.join()
        assert blas_threads() == before
