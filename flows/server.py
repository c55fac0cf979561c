"""A temporary Prefect API on loopback, started well ahead of the first flow.

Prefect starts one by itself where none is configured: when the flow is called, and
after it has imported the server's modules into the flow's own process. The same
application starts here as soon as it is known that it will be needed, and comes up
beside the imports and the workers that the flow needs.
"""

from __future__ import annotations

import atexit
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from xnq_dist.errors import InfrastructureError

__all__ = ["start_api"]

GRACE = 5.0
"""Seconds that the server has to end by itself."""


def start_api() -> Callable[[], None] | None:
    """Start a temporary API for the rest of this process, where none is configured.

    The address goes to ``PREFECT_API_URL``. Call it after `prepare_environment` and
    before flows are imported.

    Returns
    -------
    Callable or None
        Waits until the API answers; to be called before the first flow. None: an API
        is configured, or Prefect is not allowed to start one (and will say so).
    """
    from prefect.context import refresh_global_settings_context
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    if settings.api.url or not settings.server.ephemeral.enabled:
        return None
    # It listens from now on: who connects waits for the server, and no other process
    # can take the port meanwhile.
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        port = listening.getsockname()[1]
        handle = listening.fileno()
        server = subprocess.Popen(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-m", "flows.server", str(handle)],
            stdin=subprocess.PIPE,
            pass_fds=[handle],
            # A Ctrl-C is for the flow, which has its last state to tell the server.
            start_new_session=True,
        )
    # As Prefect does it: what it has queued for the API is sent before such hooks run.
    atexit.register(_stop, server)
    os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"
    refresh_global_settings_context()
    patience = settings.server.ephemeral.startup_timeout_seconds
    return partial(_wait, server, port, float(patience))


def _wait(server: subprocess.Popen[bytes], port: int, patience: float) -> None:
    """Wait until the server answers.

    Raises
    ------
    InfrastructureError
        When it ended, or does not answer in time.
    """
    end = time.monotonic() + patience
    while True:
        left = end - time.monotonic()
        try:
            status = _health(port, max(left, 0.1))
        except (OSError, http.client.HTTPException) as error:
            reason = f"{type(error).__name__} {error}".strip()
        else:
            if status == http.client.OK:
                return
            reason = f"status {status}"
        if server.poll() is not None:
            reason = f"its process ended with status {server.returncode}"
        elif left > 0:
            time.sleep(0.1)
            continue
        raise InfrastructureError(
            f"the temporary Prefect API at 127.0.0.1:{port} does not answer ({reason})"
            ": start one with `prefect server start` and set PREFECT_API_URL, or give "
            "it longer with PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"
        )


def _health(port: int, timeout: float) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().status
    finally:
        connection.close()


def _stop(server: subprocess.Popen[bytes]) -> None:
    if server.stdin is not None:
        server.stdin.close()
    try:
        server.wait(GRACE)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _end_with_parent() -> None:
    # The other end of the pipe closes however the parent ends, by SIGKILL too.
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(handle: int) -> None:
    """Be the server on a listening socket until standard input ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app(ephemeral=True, final=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    with socket.socket(fileno=handle) as listening:
        server.run(sockets=[listening])
    if not server.started:
        sys.exit(3)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
