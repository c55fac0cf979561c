"""A Prefect server, a worker and deployments, each of which can be lost."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.app.conftest import PREFECT, ROOT, prefect
from tests.chaos.processes import MARK, marked, send, wait_until
from xnq_dist.app.environment import DEFAULTS

__all__ = ["SETTINGS", "SILENCE", "Stack"]

LOST = {
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
        "prefect.server.concurrency.lease_storage.filesystem"
    ),
    "PREFECT_SERVER_EVENTS_EXPIRED_BUCKET_BUFFER": "PT1H",
}
"""Of `docs/how-to/schedule.md`."""
SILENCE = 120
"""Seconds without a heartbeat after which a flow run counts as crashed, as shipped."""
UNSTARTED = 150
"""Seconds after which a pending flow run counts as crashed; 600 as shipped."""
STARTED = 600.0
"""Maximum seconds until a server answers on a busy machine."""
TERMINAL = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")
SETTINGS: dict[str, Any] = {
    "reservoir": {
        "dim": 8,
        "supersteps": 30,
        "recurrent_scale": 1.0,
        "input_scale": 0.5,
    },
    "readout": {"C": 1.0},
    "checkpoint": {"every": 5},
    "partitions": 2,
    "intervals": {"resamples": 20},
    "cluster": {
        "kind": "local",
        "workers": 2,
        "threads": 1,
        "memory_limit": "2GiB",
        "timeout": 10,
    },
}
"""Those of `tests.chaos.base`, with two workers."""


class Stack:
    """Context manager: one server and one worker for many flow runs.

    Parameters
    ----------
    folder
        For Prefect's files, logs and temporary files.
    mark
        Value of a variable in the environment of all its processes.
    tables
        Paths of the input tables, which runs can replace.
    more
        Further variables of the server and the worker.
    """

    def __init__(
        self,
        folder: Path,
        mark: str,
        tables: dict[str, str],
        more: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)
        self._tables = tables
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
        self.environment = {
            **kept,
            **DEFAULTS,
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{self._port}/api",
            **LOST,
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.temporary),
            "XNQ_ROOT": str(ROOT),
            MARK: mark,
            **(more or {}),
        }
        self.server: subprocess.Popen[bytes]
        self.worker: subprocess.Popen[bytes]
        self.runs: list[str] = []
        """Ids of the flow runs of this stack, oldest first."""
        self._client = httpx.Client(base_url=self.url, timeout=30)

    @property
    def url(self) -> str:
        """Of the server's API."""
        return self.environment["PREFECT_API_URL"]

    @property
    def database(self) -> Path:
        """File of the server's SQLite database."""
        return self.folder / "prefect" / "prefect.db"

    def __enter__(self) -> Stack:
        with contextlib.ExitStack() as held:
            held.push(self.__exit__)
            self.start_server()
            self._deploy()
            self.start_worker()
            held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("worker", "server"):
            process = getattr(self, name, None)
            if process is not None:
                process.kill()
                process.wait(60)
        send(signal.SIGKILL, marked(self.environment[MARK]))

    def start_server(self) -> None:
        """Start the server, and wait until it answers."""
        place = ("--host", "127.0.0.1", "--port", str(self._port))
        self.server = self._start("server", "server", "start", *place)
        if not wait_until(self._answers, STARTED, 0.2):
            raise TimeoutError(f"no Prefect server, see {self.folder}/server.log")

    def start_worker(self) -> None:
        """Start the worker."""
        self.worker = self._start("worker", "worker", "start", "--pool", "xnq")

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [PREFECT, *words],
                env=self.environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        if self.server.poll() is not None:
            raise RuntimeError(f"the server ended, see {self.folder}/server.log")
        with contextlib.suppress(httpx.HTTPError):
            return self._client.get("/health").is_success
        return False

    def _deploy(self) -> None:
        """Deploy what `deploy/` describes, with quick settings and no schedule."""
        if (self.folder / "prefect.yaml").exists():
            return  # in an earlier sitting
        described = yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text())
        by_name = {each["name"]: each for each in described["deployments"]}
        for each in by_name.values():
            each["schedules"] = []
        run = str(self.folder / "run")
        given = {**self._tables, "out": run, "settings": SETTINGS, "retry_delay": 10}
        by_name["nightly"]["parameters"] = given
        file = self.folder / "prefect.yaml"
        file.write_text(yaml.safe_dump(described))
        self._prefect("work-pool", "create", "--type", "process", "xnq")
        words = "--prefect-file", str(file), "--name", "nightly"
        self._prefect("--no-prompt", "deploy", *words)
        text = (ROOT / "deploy" / "automations.yaml").read_text()
        automations = yaml.safe_load(text)["automations"]
        automations[2]["trigger"]["within"] = UNSTARTED
        file = self.folder / "automations.yaml"
        file.write_text(yaml.safe_dump({"automations": automations}))
        self._prefect("automation", "create", "--from-file", str(file))

    def _prefect(self, *words: str) -> None:
        prefect(self.environment, *words)

    def ask(self, method: str, path: str, values: object = None) -> Any:
        """An answer of the server; asks again while it is busy or starting."""
        end = time.monotonic() + STARTED
        while True:
            answer = None
            with contextlib.suppress(httpx.TransportError):
                answer = self._client.request(method, path, json=values or {})
            if answer is not None and answer.status_code != 503:
                answer.raise_for_status()
                return answer.json() if answer.content else None
            if time.monotonic() > end:
                raise TimeoutError(f"{path}: Prefect's server does not answer")
            time.sleep(0.3)

    def run(
        self,
        deployment: str = "nightly",
        environment: dict[str, str] | None = None,
        **parameters: object,
    ) -> str:
        """Schedule a run of a deployment for now; return its id."""
        path = f"/deployments/name/xnq-{deployment}/{deployment}"
        found = self.ask("GET", path)
        values = {
            "state": {"type": "SCHEDULED"},
            "parameters": parameters,
            "job_variables": {"env": environment or {}},
        }
        path = f"/deployments/{found['id']}/create_flow_run"
        self.runs.append(str(self.ask("POST", path, values)["id"]))
        return self.runs[-1]

    def flow_run(self, number: str) -> dict[str, Any]:
        """What the server knows of a flow run."""
        found: dict[str, Any] = self.ask("GET", f"/flow_runs/{number}")
        return found

    def ended(self, number: str, seconds: float) -> dict[str, Any] | None:
        """A flow run that is over and is not started again; None after `seconds`.

        A crashed run is scheduled again by an automation, half a minute later.
        """
        end = time.monotonic() + seconds
        since: float | None = None
        while time.monotonic() < end:
            found = self.flow_run(number)
            if found["state_type"] not in TERMINAL:
                since = None
            elif found["state_type"] != "CRASHED":
                return found
            else:
                since = since or time.monotonic()
                if time.monotonic() - since > 90:
                    return found
            time.sleep(0.2)
        return None
