"""Another user of the machine, who tries every port of a job, as a process.

    python stranger.py USER FOLDER PORT...

Changes to the user with that number after all imports, since other users may not be
able to read the interpreter. Tries to run a function that writes a file into the
folder, as a Dask scheduler, worker or nanny would for its owner, without credentials
and with other credentials; then requests pages. Prints the responses as JSON. Imports
none of our code.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from distributed import Security
from distributed.core import connect
from distributed.protocol.pickle import dumps

SECONDS = 10
"""That an answer may take."""

PAGES = {
    "/": None,
    "/info/main/workers.html": None,
    "/json/identity.json": None,
    "/metrics": None,
    "/api/flow_runs/filter": b"{}",
    "/api/artifacts/filter": b"{}",
    "/api/admin/settings": None,
    "/api/health": None,
}


async def ask_dask(folder: str, port: int, own: dict[str, Any]) -> list[str]:
    """Operations that a port executed."""
    tries = [
        (scheme, op, arguments, Path(folder, f"{port}-{scheme}-{op}"))
        for scheme, arguments in (("tcp", {}), ("tls", own))
        for op in ("run_function", "run")
    ]
    await asyncio.gather(
        *(
            send(f"{scheme}://127.0.0.1:{port}", op, file, arguments)
            for scheme, op, arguments, file in tries
        )
    )
    return [f"{scheme} {op}" for scheme, op, _, file in tries if file.exists()]


async def send(address: str, op: str, file: Path, arguments: Any) -> None:
    """Request a file as Dask's processes do; the result is whether it exists."""
    message = {
        "op": op,
        "function": dumps(Path.touch),
        "args": dumps((file,)),
        "kwargs": dumps({}),
        "wait": True,
        "reply": True,
    }

    async def asked() -> None:
        comm = await connect(address, timeout=SECONDS, **arguments)
        try:
            await comm.write(message)
            await comm.read()
        finally:
            comm.abort()

    # `connect` has no timeout for a peer that accepts and sends nothing.
    with suppress(OSError, TimeoutError, ValueError, EOFError):
        await asyncio.wait_for(asked(), SECONDS)


def ask_http(port: int) -> dict[str, int]:
    """HTTP status of each page; empty if the port is not an HTTP server."""
    found = {}
    for page, body in PAGES.items():
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{page}",
            data=body,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
                found[page] = answer.status
        except urllib.error.HTTPError as error:
            found[page] = error.code
        except (OSError, ValueError, http.client.HTTPException):  # no web server
            break
    return found


async def main(user: int, folder: str, ports: list[int]) -> None:
    """Try all ports at the same time."""
    own = Security.temporary().get_connection_args("client")
    if user != os.getuid():
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    ran = await asyncio.gather(*(ask_dask(folder, port, own) for port in ports))
    pages = await asyncio.gather(*(asyncio.to_thread(ask_http, port) for port in ports))
    answers = zip(ports, ran, pages, strict=True)
    found = {port: {"ran": r, "pages": p} for port, r, p in answers}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    import logging

    logging.disable()
    me, where, *found = sys.argv[1:]
    asyncio.run(main(int(me), where, [int(port) for port in found]))
