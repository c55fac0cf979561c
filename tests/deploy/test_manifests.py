"""The manifests and work pools in deploy/, checked offline.

Schemas come from packages (kubernetes-validate, dask-kubernetes); `kubectl --dry-run`
would need the API of a cluster, even with `=client`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from distributed import Security

from tests.conftest import SmallGraph, free_port, published_values, small_settings
from xnq_dist.jobs import run_all

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = [
    each
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for each in yaml.safe_load_all(file.read_text())
]


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


@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_a_manifest_fits_its_schema(manifest: dict[str, Any]) -> None:
    check_manifest(manifest)


def _pods(value: Any) -> Iterator[dict[str, Any]]:
    """All pod specifications in a manifest."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for each in value.values():
            yield from _pods(each)


def _job(**variables: Any) -> dict[str, Any]:
    """The Job of a flow run, made by Prefect's own code from the work pool."""
    return dict(_configuration("kubernetes", **variables).job_manifest)


def _configuration(kind: str, **variables: Any) -> Any:
    worker = pytest.importorskip(f"prefect_{kind}.worker")
    name = f"{kind.capitalize()}WorkerJobConfiguration"
    file = DEPLOY / ("docker" if kind == "docker" else kind) / "work-pool.json"
    template = json.loads(file.read_text())
    properties = template["variables"]["properties"]
    defaults = {key: each.get("default") for key, each in properties.items()}
    given = {"command": "prefect flow-run execute", "name": "nightly"}
    unknown = variables.keys() - properties
    assert not unknown
    from prefect.utilities.templating import apply_values

    values = {
        key: each
        for key, each in (defaults | given | variables).items()
        if each is not None
    }
    made = apply_values(template["job_configuration"], values)
    configuration = getattr(worker, name)(**made)
    if kind == "kubernetes":
        configuration._populate_env_in_manifest()
        configuration._populate_command_if_not_present()
    return configuration


def test_the_job_of_a_flow_run_fits_its_schema() -> None:
    job = _job(env={"XNQ": "1"}, memory="20Gi", deadline_seconds=3600)
    pod = job["spec"]["template"]["spec"]
    # Prefect asks for these two in the pod's specification; Kubernetes ignores them.
    assert (pod.pop("parallelism"), pod.pop("completions")) == (1, 1)
    check_manifest(job)
    container = pod["containers"][0]
    assert job["spec"]["activeDeadlineSeconds"] == 3600
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "20Gi"}
    assert {"name": "XNQ", "value": "1"} in container["env"]


def test_pods_have_limits_and_run_without_privileges() -> None:
    found = [pod for each in [*MANIFESTS, _job()] for pod in _pods(each)]
    assert len(found) == 4
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
            mounts = {each["mountPath"] for each in container["volumeMounts"]}
            # Where programs write temporary files and kernels.
            assert "/tmp" in mounts or container["name"] == "kernels"  # noqa: S108


@pytest.mark.ci
def test_the_pods_of_workers_form_an_encrypted_cluster(
    tmp_path: Path, small_graph: SmallGraph
) -> None:
    """Their commands as processes: no images, volumes, names of services, permissions.

    The Secret's files and the scheduler's address are those of this test.
    """
    (dask,) = (each for each in MANIFESTS if each["kind"] == "DaskCluster")
    security = Security.temporary()
    (tmp_path / "tls.crt").write_text(security.tls_ca_file)
    (tmp_path / "tls.key").write_text(security.tls_client_key)
    port = str(free_port())
    here = {
        "tls://xnq-scheduler.xnq:8786": f"tls://127.0.0.1:{port}",
        "8786": port,
        "/tmp": str(tmp_path),  # noqa: S108
        "15GiB": "1GiB",
    }

    def put_here(text: str) -> str:
        return here.get(text, text.replace("/etc/xnq", str(tmp_path)))

    def pod(name: str) -> subprocess.Popen[bytes]:
        container = dask["spec"][name]["spec"]["containers"][0]
        variables = {each["name"]: put_here(each["value"]) for each in container["env"]}
        words = [put_here(each) for each in container["args"]]
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                *words,
                *(["--host", "127.0.0.1"] * (name != "worker")),
            ],
            env=os.environ | variables | {"PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )

    files = {"tls_ca": "tls.crt", "tls_cert": "tls.crt", "tls_key": "tls.key"}
    settings = small_settings(
        "cluster.kind=address",
        "cluster.workers=auto",
        f"cluster.address=tls://127.0.0.1:{port}",
        *(f"cluster.{key}={tmp_path / file}" for key, file in files.items()),
    )
    processes = [pod("scheduler"), pod("worker")]
    try:
        run_all(small_graph.sources, str(tmp_path / "run"), settings)
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
    alone = small_settings("cluster.workers=1")
    run_all(small_graph.sources, str(tmp_path / "alone"), alone)
    assert published_values(tmp_path / "run").equals(
        published_values(tmp_path / "alone")
    )


def test_a_container_of_the_docker_pool_runs_without_privileges() -> None:
    made = _configuration("docker", mem_limit="8g", env={"XNQ": "1"})
    more = made.container_create_kwargs
    assert made.mem_limit == made.memswap_limit == "8g"
    assert not made.privileged
    assert more["read_only"]
    assert more["cap_drop"] == ["ALL"]
    # All keys are arguments of docker-py's `create`.
    docker = pytest.importorskip("docker.models.containers")
    known = {*docker.RUN_CREATE_KWARGS, *docker.RUN_HOST_CONFIG_KWARGS}
    assert more.keys() <= known


def _tool(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_the_compose_file_is_valid() -> None:
    file = str(DEPLOY / "docker" / "compose.yaml")
    command = [_tool("docker-compose"), "-f", file, "config", "--format", "json"]
    made = subprocess.run(
        command,
        env={"XNQ_DB_PASSWORD": "test", "PATH": ""},
        check=True,
        capture_output=True,
    )
    services = json.loads(made.stdout)["services"]
    assert {"server", "database", "worker", "scheduler", "dask-worker"} <= set(services)
    # Nothing but Prefect's page is published, on this machine alone.
    ports = [port for each in services.values() for port in each.get("ports", ())]
    assert [(each["host_ip"], each["published"]) for each in ports] == [
        ("127.0.0.1", "4200")
    ]
    without = subprocess.run(
        command, env={"PATH": ""}, capture_output=True, check=False
    )
    assert b"set a password for the database" in without.stderr


def test_the_image_sets_the_variables_that_the_deployments_use() -> None:
    used = re.findall(r"{{ \$(\w+) }}", (DEPLOY / "prefect.yaml").read_text())
    file = (DEPLOY / "docker" / "Dockerfile").read_text()
    given = dict(re.findall(r"^(?:ENV|   ) (\w+)=(\S+)", file, re.MULTILINE))
    assert {name: given.get(name) for name in used} == {
        "XNQ_ROOT": "/app",
        "XNQ_DATA": "/data",
    }


@pytest.mark.parametrize(
    "file",
    ["deploy/docker/compose.yaml", "deploy/README.md", "docs/how-to/schedule.md"],
)
def test_the_servers_variables_bound_its_database_and_serve_lost_runs(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by Prefect itself, which refuses seconds where it wants P7D."""
    from prefect.server.events.ordering import PRECEDING_EVENT_LOOKBACK
    from prefect.settings.models.server.root import ServerSettings

    text = (DEPLOY.parent / file).read_text()
    for name, value in re.findall(r"(PREFECT_SERVER_\w+)(?:=|: )\"?([\w,.]+)", text):
        monkeypatch.setenv(name, value)
    server = ServerSettings()
    kept = server.services.db_vacuum
    assert kept.enabled_vacuum_types == {"events", "flow_runs", "orphans"}
    assert kept.retention_period == timedelta(days=30)
    # As set, not by Prefect's default, which another version may change.
    assert "retention_period" in server.events.model_fields_set
    assert server.events.retention_period == timedelta(days=7)
    assert max(kept.event_retention_overrides.values()) <= timedelta(days=7)
    # Leases on a disk, and buckets of automations that outlast the 15 minutes for which
    # Prefect holds events: runs that are lost together with the server start again.
    assert server.concurrency.lease_storage.endswith(".filesystem")
    assert server.events.expired_bucket_buffer > PRECEDING_EVENT_LOOKBACK


def test_the_dockerfile_passes_hadolint() -> None:
    file = str(DEPLOY / "docker" / "Dockerfile")
    done = subprocess.run(
        [_tool("hadolint"), file], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
