"""What `deploy/prefect.yaml` names is there, and takes the parameters it gives."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import yaml
from prefect.flows import load_flow_from_entrypoint

import xnq_dist
from tests.conftest import small_settings, write_graph

CLONE = Path(xnq_dist.__file__).parents[1]
DEPLOYMENTS = yaml.safe_load(
    (CLONE / "deploy" / "prefect.yaml").read_text(encoding="utf-8")
)["deployments"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda each: each["name"])
def test_a_deployments_flow_takes_its_parameters(deployment, monkeypatch):
    monkeypatch.chdir(CLONE)
    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    assert flow.validate_parameters(deployment["parameters"])
    assert flow.name == f"xnq-{deployment['name']}"
    assert deployment["parameters"]["timeout"] > 0


@pytest.mark.server
def test_a_flow_that_takes_too_long_fails_with_a_sentence(tmp_path, prefect_api):
    from flows.nightly import nightly

    write_graph(tmp_path / "data", nodes=400, edges=1500)
    settings = small_settings("reservoir.supersteps=10000", "reservoir.dim=512")
    before = set(psutil.Process().children(recursive=True))
    state = nightly(
        str(tmp_path / "data" / "nodes.parquet"),
        str(tmp_path / "data" / "edges.parquet"),
        str(tmp_path / "out"),
        settings=settings,
        timeout=20,
        return_state=True,
    )
    assert state.is_failed()
    assert "longer than its parameter timeout (20 s)" in state.message
    started = set(psutil.Process().children(recursive=True)) - before
    assert not [each for each in started if "spawn_main" in " ".join(each.cmdline())]
    assert not (tmp_path / "out" / "_lock.json").exists()
