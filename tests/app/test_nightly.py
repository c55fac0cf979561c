"""The flow `nightly`: its stages are task runs, and its end is a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client

from flows.nightly import nightly
from flows.requantify import requantify
from tests.app.commands import SMALL, ended, run_words
from tests.conftest import SmallGraph, small_settings, write_graph
from xnq_dist import pipeline
from xnq_dist.app import running
from xnq_dist.core.errors import InfrastructureError
from xnq_dist.core.store import RunDirectory

pytestmark = pytest.mark.server

STAGES = ["graph", "embed", "readout", "posteriors", "quantify", "publish"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> SmallGraph:
    return write_graph(tmp_path_factory.mktemp("nightly"), nodes=150, edges=500)


def tasks(flow_run: Any) -> list[str]:
    """Names of the task runs of a flow run in their order, all of them completed."""
    with get_client(sync_client=True) as client:
        found = client.request("POST", "/task_runs/filter", json={}).json()
    ours = [run for run in found if run["flow_run_id"] == str(flow_run)]
    assert {run["state_name"] for run in ours} <= {"Completed"}
    ours.sort(key=lambda run: run["start_time"])
    return [run["name"].rpartition("-")[0] for run in ours]  # Prefect adds a number


def test_a_night_does_its_due_stages_in_order(graph, tmp_path, prefect_api):
    out, settings = str(tmp_path / "run"), small_settings("cluster.workers=1")
    given = (graph.sources.nodes, graph.sources.edges, out)
    state = nightly(*given, settings=settings, return_state=True)
    assert state.message.startswith("First results")
    assert tasks(state.state_details.flow_run_id) == STAGES
    again = nightly(*given, settings=settings, return_state=True)
    assert again.message.startswith("Nothing changed since")
    assert tasks(again.state_details.flow_run_id) == []
    other = requantify(out, overrides=["quantifier=pcc"], return_state=True)
    assert other.is_completed()
    named = tasks(other.state_details.flow_run_id)
    assert named == ["labels", "quantify", "publish"]


def test_a_night_that_computes_everything_again_resumes_after_a_lost_worker(
    graph, tmp_path, prefect_api, monkeypatch
):
    settings = small_settings("cluster.workers=1")
    given = (graph.sources.nodes, graph.sources.edges, str(tmp_path / "run"))
    assert nightly(*given, settings=settings, return_state=True).is_completed()
    graphs, embed = [], pipeline.embed

    def lost_once(run: Any, *more: Any) -> Any:
        graphs.append(run.stage("graph").manifest().attempt)
        if len(graphs) == 1:
            raise InfrastructureError("a worker was lost")
        return embed(run, *more)

    monkeypatch.setattr(pipeline, "embed", lost_once)
    before = RunDirectory(given[-1]).stage("graph").manifest().attempt
    again = {"overwrite": True, "retries": 1, "retry_delay": 0.0}
    state = nightly(*given, settings=settings, **again, return_state=True)
    assert state.is_completed()
    assert len(graphs) == 2
    assert {*graphs} == {graphs[0]} != {before}


def test_a_failed_night_says_what_to_do_next(graph, tmp_path, prefect_api):
    given = (str(tmp_path / "none.parquet"), graph.sources.edges, str(tmp_path / "run"))
    state = nightly(*given, return_state=True)
    assert state.is_failed()
    assert "none.parquet does not exist" in state.message
    assert "Next: correct the table or setting" in state.message
    later = requantify(str(tmp_path / "run"), return_state=True)
    assert "is not a run directory with embeddings" in later.message


def test_the_command_runs_the_flow(graph, tmp_path, prefect_api):
    out = tmp_path / "run"
    words = run_words(Path(graph.sources.nodes).parent, out, *SMALL)
    assert ended(*words, "--prefect") == 0
    assert RunDirectory(out).current_id()
    with get_client(sync_client=True) as client:
        found = client.request("POST", "/flow_runs/filter", json={}).json()
    newest = max(found, key=lambda run: run["created"])
    assert newest["state_name"] == "Completed"
    assert newest["parameters"]["out"] == str(out)


def test_the_command_without_prefect_says_what_to_install(
    graph, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(running, "find_spec", lambda _: None)
    words = run_words(Path(graph.sources.nodes).parent, tmp_path / "run")
    assert ended(*words, "--prefect") == 2
    assert "pip install 'xnq-dist[prefect]'" in capsys.readouterr().err
