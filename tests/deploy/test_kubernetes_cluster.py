"""`cluster.kind = kubernetes` against a stand-in for the API: see `stand_in`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import published_values, small_settings, write_graph
from tests.deploy.stand_in import StandIn, check_manifest, kubernetes_api
from xnq_dist.core import cluster
from xnq_dist.core.cluster import LocalSize
from xnq_dist.core.clusters import kubernetes
from xnq_dist.core.errors import ClusterError, InfrastructureError, SettingsError
from xnq_dist.input_checks import check_sources
from xnq_dist.jobs import run_all

TEMPLATE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "daskcluster.yaml"


def pod_settings(*overrides: str) -> Any:
    return small_settings(
        "cluster.kind=kubernetes",
        "cluster.timeout=180",
        f"cluster.template={TEMPLATE}",
        *overrides,
    )


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    kr8s = pytest.importorskip("kr8s")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    # kr8s keeps connections to the first API that a process asked.
    monkeypatch.setattr(kr8s.Api, "_instances", {})
    with kubernetes_api(tmp_path) as running:
        here = f"tls://127.0.0.1:{running.port}"
        monkeypatch.setattr(kubernetes, "_address", lambda *_: here)
        yield running


def test_the_manifest_of_a_run_fits_the_schemas_of_kubernetes_and_the_operator() -> (
    None
):
    template = yaml.safe_load(TEMPLATE.read_text())
    size = LocalSize(3, 2, 5 * 2**30)
    made = kubernetes.cluster_manifest(
        template, size, "xnq-1", "here", "xnq_dist.preload"
    )
    check_manifest(made)
    worker = made["spec"]["worker"]
    container = worker["spec"]["containers"][0]
    assert worker["replicas"] == 3
    assert container["resources"]["limits"] == {"cpu": "4", "memory": str(5 * 2**30)}
    assert container["args"][-6:] == [
        *("--nthreads", "2", "--memory-limit", str(5 * 2**30)),
        *("--preload", "xnq_dist.preload"),
    ]
    assert made["metadata"] == {"name": "xnq-1", "namespace": "here"}
    # A pod of the operator's own pod kind, too.
    for part in ("scheduler", "worker"):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}}
        check_manifest(pod | {"spec": made["spec"][part]["spec"]})


def test_sizes_come_from_the_settings_and_else_from_the_manifest() -> None:
    auto = ("cluster.workers=auto", "cluster.threads=auto")
    assert kubernetes.size(pod_settings(*auto).cluster) == LocalSize(4, 4, 16 * 2**30)
    given = ("cluster.workers=9", "cluster.threads=2", "cluster.memory_limit=3 GiB")
    assert kubernetes.size(pod_settings(*given).cluster) == LocalSize(9, 2, 3 * 2**30)


@pytest.mark.ci
def test_pods_have_encrypted_connections_and_are_deleted_at_the_end(
    api: StandIn,
) -> None:
    one = ("cluster.workers=1", "cluster.memory_limit=1 GiB")
    settings = pod_settings(*one).cluster
    kubernetes.check(settings)
    with (
        cluster.open_cluster(settings, "xnq_dist.preload") as connection,
        cluster.connect(connection) as client,
    ):
        assert connection.address.startswith("tls://")
        assert set(client.run(_spills).values()) == {(False, True)}
        assert len(api.clusters) == len(api.secrets) == 1
    assert not api.clusters
    assert not api.secrets
    assert not api.processes


def _spills() -> tuple[Any, Any]:
    import dask

    return (
        dask.config.get("distributed.worker.memory.spill"),
        dask.config.get("distributed.comm.require-encryption"),
    )


@pytest.mark.ci
def test_a_run_on_pods_has_the_bits_of_a_run_in_this_process(
    api: StandIn, tmp_path: Path
) -> None:
    graph = write_graph(tmp_path / "graph")
    pods = ("partitions=2", "cluster.workers=1", "cluster.memory_limit=2 GiB")
    for name, settings in (
        ("single", small_settings("partitions=2", "cluster.kind=single")),
        ("pods", pod_settings(*pods)),
    ):
        run_all(graph.sources, str(tmp_path / name), settings)
    single = published_values(tmp_path / "single")
    assert published_values(tmp_path / "pods").equals(single)
    assert [each["kind"] for each in api.made] == ["DaskCluster", "Secret"]


def test_what_is_missing_is_one_sentence_before_any_table_is_read(
    api: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = write_graph(tmp_path / "graph")
    api.operator = False
    with pytest.raises(ClusterError, match="has no Dask operator: install it"):
        check_sources(graph.sources, pod_settings())

    config = tmp_path / "elsewhere"
    text = (tmp_path / "kubeconfig").read_text()
    port = text.split("http://127.0.0.1:")[1].split()[0]
    config.write_text(text.replace(port, "9"))
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setattr(sys.modules["kr8s"].Api, "_instances", {})
    with pytest.raises(
        InfrastructureError, match=r"Kubernetes API .* check KUBECONFIG"
    ):
        check_sources(graph.sources, pod_settings())

    monkeypatch.setattr(kubernetes, "find_spec", lambda _: None)
    with pytest.raises(ClusterError, match=r"pip install 'xnq-dist\[kubernetes\]'"):
        check_sources(graph.sources, pod_settings())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read .* correct cluster.template"),
        ("a: [", "is not a DaskCluster manifest"),
        ("kind: Pod", "is not a DaskCluster manifest"),
        ("- 1", "is not a DaskCluster manifest"),
        ("[" * 9999, "is not a DaskCluster manifest"),
    ],
)
def test_a_wrong_manifest_is_refused(
    tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "template.yaml"
    if text is not None:
        file.write_text(text)
    settings = pod_settings(f"cluster.template={file}").cluster
    with pytest.raises(SettingsError, match=message):
        kubernetes.size(settings)


def test_a_cluster_without_a_manifest_is_refused() -> None:
    settings = small_settings("cluster.kind=kubernetes").cluster
    with pytest.raises(SettingsError, match=r"needs cluster\.template"):
        kubernetes.size(settings)
