"""A stand-in for the API of a Kubernetes cluster with the Dask operator.

There is no cluster in the tests. The stand-in takes the requests that `cluster.kind =
kubernetes` sends, checks the manifests against the schemas that Kubernetes and the
operator publish, and runs the containers' commands as processes of this machine, with
the environment that the manifests give them. What it does not show: images, volumes,
service names, scheduling, permissions.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

KUBERNETES = "1.34"
"""Version of the schemas."""


def check_manifest(manifest: dict[str, Any]) -> None:
    """Check a manifest against its schema; unknown keys are errors."""
    if manifest["kind"] == "DaskCluster":
        package = pytest.importorskip("dask_kubernetes")
        folder = Path(package.__file__).parent / "operator/deployment/helm"
        file = folder / "dask-kubernetes-operator/crds/daskcluster.yaml"
        definition = yaml.safe_load(file.read_text())
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        import jsonschema

        jsonschema.validate(manifest, _strict(schema, top=True))
        return
    module = pytest.importorskip("kubernetes_validate")
    module.validate(manifest, KUBERNETES, strict=True)


def _strict(schema: Any, top: bool = False) -> Any:
    """The schema with unknown keys as errors, as `kubectl` has it."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        if top:
            known = ("apiVersion", "kind", "metadata", "status")
            made["properties"] |= {key: {} for key in known}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    return made


class StandIn:
    """What the API was asked for, and the processes that stand for pods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clusters: dict[str, dict[str, Any]] = {}
        self.secrets: dict[str, dict[str, Any]] = {}
        self.made: list[dict[str, Any]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.operator = True
        """Whether the Dask operator's resources are known."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def create(self, kind: str, manifest: dict[str, Any]) -> dict[str, Any]:
        """Take a new object."""
        check_manifest(manifest)
        self.made.append(manifest)
        name = manifest["metadata"]["name"]
        stored = {"daskclusters": self.clusters, "secrets": self.secrets}[kind]
        stored[name] = manifest
        manifest["metadata"]["uid"] = f"uid-of-{name}"
        if name in self.clusters and name in self.secrets:
            self._start(name)
        return manifest

    def delete(self, name: str) -> None:
        """Delete a cluster and what it owns."""
        del self.clusters[name]
        (owner,) = self.secrets[name]["metadata"]["ownerReferences"]
        assert owner["name"] == name
        del self.secrets[name]
        self.stop()

    def stop(self) -> None:
        """End all processes."""
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        self.processes.clear()

    def pods(self) -> list[dict[str, Any]]:
        """The running processes as pods."""
        return [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"pod-{number}",
                    "namespace": "xnq",
                    "labels": {
                        "dask.org/component": "worker" if number else "scheduler"
                    },
                },
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            for number, process in enumerate(self.processes)
            if process.poll() is None
        ]

    def _start(self, name: str) -> None:
        spec = self.clusters[name]["spec"]
        self._run(spec["scheduler"], ["--host", "127.0.0.1", "--port", str(self.port)])
        for _ in range(spec["worker"]["replicas"]):
            self._run(spec["worker"], ["--local-directory", str(self.folder)])

    def _run(self, part: dict[str, Any], more: list[str]) -> None:
        container = part["spec"]["containers"][0]
        # Tasks of tests are functions of this folder's modules.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        for each in container.get("envFrom", []):
            environment |= self.secrets[each["secretRef"]["name"]]["stringData"]
        for each in container.get("env", []):
            environment[each["name"]] = each["value"]
        worker = f"pod-{len(self.processes)}"
        words = [
            worker if each == "$(DASK_WORKER_NAME)" else each
            for each in container["args"]
        ]
        assert words[0] == "dask"
        with open(self.folder / f"{worker}.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words, *more],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)


@contextmanager
def kubernetes_api(folder: Path) -> Iterator[StandIn]:
    """A running stand-in; `KUBECONFIG` must name ``folder/kubeconfig``."""
    state = StandIn(folder)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, value: dict[str, Any], status: int = 200) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            path = self.path.split("?")[0].rstrip("/")
            if path == "/version":
                self._answer({"gitVersion": f"v{KUBERNETES}.0"})
            elif path.endswith("/pods"):
                self._answer({"kind": "PodList", "items": state.pods()})
            elif path.endswith("/daskclusters") and state.operator:
                self._answer({"items": list(state.clusters.values())})
            else:
                self._answer({"kind": "Status", "message": f"no {path}"}, 404)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            manifest = json.loads(self.rfile.read(length))
            kind = self.path.split("?")[0].rstrip("/").split("/")[-1]
            self._answer(state.create(kind, manifest), 201)

        def do_DELETE(self) -> None:
            state.delete(self.path.split("?")[0].rstrip("/").split("/")[-1])
            self._answer({"kind": "Status"})

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "stand-in",
        "clusters": [
            {
                "name": "stand-in",
                "cluster": {"server": f"http://127.0.0.1:{server.server_port}"},
            }
        ],
        "users": [{"name": "someone", "user": {"token": "none"}}],
        "contexts": [
            {
                "name": "stand-in",
                "context": {
                    "cluster": "stand-in",
                    "user": "someone",
                    "namespace": "xnq",
                },
            }
        ],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        state.stop()
