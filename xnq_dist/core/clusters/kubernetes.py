"""A cluster of pods, which the Dask operator starts from a `DaskCluster` manifest.

The operator's own client, `KubeCluster`, connects without encryption. Here each cluster
has temporary TLS credentials in a Secret, which is deleted together with the cluster.
"""

from __future__ import annotations

import copy
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import yaml

from xnq_dist.core.cluster import PLANNED, LocalSize, environment_of
from xnq_dist.core.clusters import ClusterKind
from xnq_dist.core.errors import ClusterError, InfrastructureError, SettingsError
from xnq_dist.core.settings_sections import ClusterSettings
from xnq_dist.core.sizes import parse_bytes

if TYPE_CHECKING:
    from distributed import Security

__all__ = ["RECORDS", "check", "cluster_manifest", "credentials", "size", "start"]

RECORDS = (
    ClusterKind(
        name="kubernetes",
        title="pods that the Dask operator of a Kubernetes cluster starts",
        rank=6,
        hosts=True,
        checked=True,
    ),
)

START = 600.0
"""Seconds for the scheduler and a worker to start, the download of images included."""
POLL = 1.0
"""Seconds between two looks at the pods."""

log = logging.getLogger(__name__)


def check(settings: ClusterSettings) -> None:
    """Check the manifest, and that the API answers and knows the Dask operator.

    Raises
    ------
    SettingsError, ClusterError, InfrastructureError
        The message says what to install, start or correct.
    """
    _read(settings)
    if find_spec("kr8s") is None:
        raise ClusterError(
            "cluster.kind = kubernetes needs the package kr8s, which is not installed: "
            "pip install 'xnq-dist[kubernetes]'"
        )
    import kr8s

    with _api():
        list(kr8s.get(_dask_cluster(), namespace=kr8s.ALL, label_selector="xnq=none"))


def size(settings: ClusterSettings, free: int | None = None) -> LocalSize:
    """Workers, threads and memory from the settings; ``auto``: from the manifest."""
    worker = _read(settings)["spec"]["worker"]
    limits = worker["spec"]["containers"][0]["resources"]["limits"]
    cpu, memory = str(limits["cpu"]), settings.memory_limit
    cores = float(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
    replicas, threads = max(1, int(worker.get("replicas", 1))), max(1, int(cores))
    return LocalSize(
        replicas if settings.workers == "auto" else settings.workers,
        threads if settings.threads == "auto" else settings.threads,
        # Kubernetes writes 16Gi and 16G for 16 GiB and 16 GB.
        parse_bytes(f"{limits['memory']}B" if memory == "auto" else memory),
    )


def _read(settings: ClusterSettings) -> dict[str, Any]:
    """The manifest `cluster.template`, with the parts that are used here."""
    file = settings.template
    if file is None:
        raise SettingsError(
            "cluster.kind = kubernetes needs cluster.template: set it to the file of a "
            "DaskCluster manifest, such as deploy/kubernetes/daskcluster.yaml"
        )
    try:
        made: dict[str, Any] = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        limits = made["spec"]["worker"]["spec"]["containers"][0]["resources"]["limits"]
        parts = limits["memory"], limits["cpu"], made["spec"]["scheduler"]["service"]
    except OSError as error:
        raise SettingsError(
            f"{file} cannot be read ({error.strerror}): correct cluster.template"
        ) from error
    except (yaml.YAMLError, LookupError, RecursionError, TypeError, ValueError):
        parts = None
    if parts is None or made.get("kind") != "DaskCluster":
        raise SettingsError(
            f"{file} is not a DaskCluster manifest with a scheduler, its service, and "
            "workers with limits of memory and cpu: start from "
            "deploy/kubernetes/daskcluster.yaml, or correct cluster.template"
        )
    return made


def cluster_manifest(
    template: dict[str, Any],
    size: LocalSize,
    name: str,
    namespace: str,
    preload: str = "",
) -> dict[str, Any]:
    """The `DaskCluster` of one run.

    Parameters
    ----------
    template
        The manifest `cluster.template`.
    name
        Name of the cluster, and of the Secret with its credentials.
    """
    made = copy.deepcopy(template)
    made["metadata"] = {**made.get("metadata", {}), "name": name}
    made["metadata"]["namespace"] = namespace
    scheduler, worker = made["spec"]["scheduler"], made["spec"]["worker"]
    scheduler["service"]["selector"] = {
        "dask.org/cluster-name": name,
        "dask.org/component": "scheduler",
    }
    worker["replicas"] = size.workers
    first, second = (each["spec"]["containers"][0] for each in (scheduler, worker))
    for container in (first, second):
        container.setdefault("envFrom", []).append({"secretRef": {"name": name}})
    first.setdefault("args", []).extend(["--protocol", "tls"])
    # The last one of repeated options counts.
    options = ["--nthreads", str(size.threads), "--memory-limit", str(size.memory)]
    options += ["--preload", preload] if preload else []
    second.setdefault("args", []).extend(options)
    for kind in ("limits", "requests"):
        second["resources"].setdefault(kind, {})["memory"] = str(size.memory)
    second.setdefault("env", []).append(
        {"name": "DASK_SCHEDULER_ADDRESS", "value": _address(name, namespace)}
    )
    return made


def _address(name: str, namespace: str) -> str:
    return f"tls://{name}-scheduler.{namespace}:8786"


def credentials(security: Any) -> dict[str, str]:
    """Environment of scheduler and workers: credentials, and settings of Dask."""
    cert, key = security.tls_client_cert, security.tls_client_key
    values: dict[str, Any] = {
        **PLANNED,
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": security.tls_ca_file,
    }
    for role in ("scheduler", "worker", "client"):
        values |= {
            f"distributed.comm.tls.{role}.cert": cert,
            f"distributed.comm.tls.{role}.key": key,
        }
    return environment_of(values)


class _Pods:
    """A cluster that was started here."""

    def __init__(self, made: Any, address: str, security: Security) -> None:
        self._made = made
        self.scheduler_address = address
        self.security = security

    def close(self, timeout: float | None = None) -> None:
        """Delete the cluster; Kubernetes then deletes its pods and its Secret."""
        import kr8s

        with _api():
            try:
                self._made.delete()
            except kr8s.NotFoundError:
                log.info("%s was deleted already", self._made.name)


def start(settings: ClusterSettings, size: LocalSize, preload: str) -> Any:
    """Start the pods and wait for the scheduler and one worker."""
    import kr8s
    from distributed import Security
    from kr8s.objects import Secret

    template, name = _read(settings), f"xnq-{uuid4().hex[:10]}"
    security = Security.temporary()
    with _api():
        api = kr8s.api()
        namespace = template.get("metadata", {}).get("namespace", api.namespace)
        manifest = cluster_manifest(template, size, name, namespace, preload)
        if owners := _this_pod(namespace):
            manifest["metadata"]["ownerReferences"] = owners
        made = _dask_cluster()(manifest)
        made.create()
        pods = _Pods(made, _address(name, namespace), security)
        try:
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "ownerReferences": [_reference(made)],
                },
                "stringData": credentials(security),
            }
            Secret(secret).create()
            log.info("waiting for the pods of %s in namespace %s", name, namespace)
            _wait(name, namespace)
        except BaseException:
            pods.close()
            raise
    return pods


def _dask_cluster() -> Any:
    """The class of the operator's resource."""
    from kr8s.objects import new_class

    return new_class("DaskCluster", "kubernetes.dask.org/v1", namespaced=True)


def _reference(made: Any) -> dict[str, Any]:
    return {
        "apiVersion": made.version,
        "kind": made.kind,
        "name": made.name,
        "uid": made.metadata["uid"],
    }


def _this_pod(namespace: str) -> list[dict[str, Any]]:
    """The pod of this process, so that its end, even by SIGKILL, ends the cluster."""
    import kr8s
    from kr8s.objects import Pod

    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        return []
    try:
        return [_reference(Pod.get(os.uname().nodename, namespace))]
    except (kr8s.NotFoundError, kr8s.ServerError) as error:
        log.warning(
            "the pod of this process cannot be read in namespace %s (%s): if this "
            "process is killed, delete its DaskCluster yourself",
            namespace,
            error,
        )
        return []


def _wait(name: str, namespace: str) -> None:
    """Wait until the scheduler and a worker run."""
    import kr8s
    from kr8s.objects import Pod

    end = time.monotonic() + START
    label = f"dask.org/cluster-name={name}"
    while True:
        found = list(kr8s.get(Pod, namespace=namespace, label_selector=label))
        ready = {pod.labels["dask.org/component"] for pod in found if _state(pod) == ""}
        if {"scheduler", "worker"} <= ready:
            return
        if time.monotonic() > end:
            states = {f"{pod.name}: {_state(pod)}" for pod in found if _state(pod)}
            why = ", ".join(sorted(states)) or "no pods: is the Dask operator running?"
            raise TimeoutError(f"pods of {name} are not ready after {START:g} s; {why}")
        time.sleep(POLL)


def _state(pod: Any) -> str:
    """Why a pod is not ready; empty: it is."""
    status = pod.raw.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    if conditions.get("Ready", {}).get("status") == "True":
        return ""
    for container in status.get("containerStatuses", []):
        if reason := container.get("state", {}).get("waiting", {}).get("reason"):
            return str(reason)
    return str(conditions.get("PodScheduled", {}).get("message", status.get("phase")))


@contextmanager
def _api() -> Iterator[None]:
    """Errors of the API as one sentence."""
    import httpx
    import kr8s

    try:
        yield
    except (
        kr8s.APITimeoutError,
        kr8s.ConnectionClosedError,
        kr8s.NotFoundError,
        kr8s.ServerError,
        httpx.HTTPError,
        ValueError,  # no credentials
    ) as error:
        answer = getattr(error, "response", None)
        if answer is not None and answer.status_code == 404:
            raise ClusterError(
                "the Kubernetes cluster has no Dask operator: install it "
                "(https://kubernetes.dask.org), or set another cluster.kind"
            ) from error
        raise InfrastructureError(
            "the Kubernetes API cannot be used for cluster.kind = kubernetes "
            f"({str(error) or type(error).__name__}): check KUBECONFIG, or the Role of "
            "this pod's ServiceAccount, with `kubectl get daskclusters`"
        ) from error
