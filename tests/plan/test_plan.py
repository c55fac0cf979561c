"""The plan of a run: made once, recorded, used by its stages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.conftest import small_settings, with_graph
from xnq_dist import jobs, pipeline
from xnq_dist.app.cli import main
from xnq_dist.core import cluster
from xnq_dist.core.clusters import local
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import DoesNotFitError, SettingsError
from xnq_dist.core.store import PLAN, RunDirectory, verify
from xnq_dist.plan import GraphSize, Plan

FREE = 8 * 2**30


@pytest.fixture
def asked(monkeypatch):
    """How often free memory was read; it is always the same."""
    times = []

    def free():
        times.append(FREE)
        return FREE

    monkeypatch.setattr(cluster, "free_memory", free)
    return times


def plan_of(run):
    return json.loads(run.read_bytes(PLAN))


def test_estimate_prints_what_the_run_records(tmp_path, small_graph, asked, capsys):
    settings = small_settings("partitions=3")
    run = with_graph(tmp_path / "run", small_graph.sources, settings)
    chosen = tmp_path / "settings.yaml"
    chosen.write_text(json.dumps(settings.model_dump(mode="json")))
    tables = vars(small_graph.sources)
    with pytest.raises(SystemExit):
        main(
            ["estimate", "--json", "--config", str(chosen)]
            + [f"--{name}={tables[name]}" for name in ("nodes", "edges")]
        )
    printed = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    recorded = plan_of(run)
    assert printed == recorded["planned"]
    assert printed["client_limit"] == FREE
    assert len(asked) == 2  # by the stage and by the command


def test_a_run_plans_once_and_records_it(tmp_path, small_graph, asked):
    out, settings = str(tmp_path / "run"), small_settings("partitions=3")
    jobs.run_all(small_graph.sources, out, settings)
    assert len(asked) == 1
    run = RunDirectory(out)
    plan = Plan.read(run)
    assert plan == pipeline.estimate(small_graph.sources, settings)
    before = run.read_bytes(PLAN)
    asked.clear()
    assert jobs.run_all(small_graph.sources, out, settings)["stages"] == {}
    assert asked == []
    assert run.read_bytes(PLAN) == before


def test_every_stage_obeys_the_plan(tmp_path, small_graph, client, monkeypatch, caplog):
    sources = small_graph.sources
    settings = small_settings("communities=column:label")
    with pipeline.open_run(str(tmp_path / "run"), sources) as run:
        monkeypatch.setattr(cluster, "free_memory", lambda: 2**20)
        with pytest.raises(DoesNotFitError, match=r"need 400\.\d MiB but 1\.0 MiB are"):
            pipeline.prepare(run, sources, settings)
        monkeypatch.undo()
        pipeline.prepare(run, sources, settings)
        other = small_settings("communities=column:label", "seed=7")
        for stage in (
            lambda: pipeline.embed(run, other, client),
            lambda: pipeline.embed(run, settings, client),  # in its place
            lambda: pipeline.fit_readout(run, settings, client),
            lambda: pipeline.posteriors(run, settings, client),
            lambda: pipeline.quantify(run, sources, settings, client),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(cluster, "smallest_memory", lambda _: 100 * 2**20)
                needs = r"worker needs [45]\d\d\.\d MiB but may use 100\.0 MiB"
                with pytest.raises(DoesNotFitError, match=needs):
                    stage()
            stage()
        replace(Plan.read(run), worker_memory=2**20).write(run)
        run.remove("embeddings")
        pipeline.embed(run, settings, client)
        assert "more than the planned 1.0 MiB" in caplog.text


def test_numbers_of_a_plan_stand_where_settings_say_auto(small_graph, asked):
    settings = small_settings()
    plan = pipeline.estimate(small_graph.sources, settings)
    resolved = plan.resolved(settings)
    assert resolved.partitions == plan.partitions == 2
    found = local.size(resolved.cluster)
    assert (found.count, found.threads) == (2, 1)
    assert found.memory == plan.worker_limit
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("free", "overrides", "kind"),
    [
        (FREE, ["cluster.workers=auto"], "auto"),
        (FREE, ["cluster.workers=1"], "auto"),
        (FREE, ["cluster.workers=2"], "local"),
        (2**29, ["cluster.workers=auto"], "local"),
        (FREE, ["cluster.workers=auto", "cluster.memory_limit=400MiB"], "local"),
        (FREE, ["cluster.workers=auto", "cluster.kind=local"], "local"),
    ],
)
def test_one_process_does_what_fits_and_workers_do_the_rest(
    small_graph, monkeypatch, free, overrides, kind
):
    monkeypatch.setattr(cluster, "free_memory", lambda: free)
    settings = small_settings(*overrides)
    plan = pipeline.estimate(small_graph.sources, settings)
    assert plan.kind == kind
    assert plan.resolved(settings).cluster.kind == kind
    assert plan.placed(settings).cluster.kind == kind
    alone = (plan.workers, plan.partitions) == (1, 1)
    assert alone == (kind == "auto")


def test_worker_processes_do_large_graphs_on_machines_of_many_processors(
    monkeypatch,
):
    monkeypatch.setattr(cluster, "free_memory", lambda: 2**36)

    def choice(processors, edges, *overrides):
        monkeypatch.setattr(local, "processors", lambda: processors)
        size = GraphSize(10**6, edges, 8, 2, labelled=10**4)
        plan = pipeline.estimate_counts(size, load_settings(overrides=overrides))
        return plan.workers, dict(plan.lines())["chosen"]

    many = ("cluster.workers=4", "cluster.memory_limit=8GiB")
    assert choice(2, 10**7, *many) == (4, "4 worker processes, set by cluster.workers")
    for processors, edges in ((2, 10**8), (64, 10**7 - 1)):
        workers, why = choice(processors, edges)
        assert workers == 1
        assert why.startswith("one process, which needs ")
        assert why.endswith(" of 57.6 GiB")
    workers, why = choice(8, 10**7)
    assert workers == 4
    assert why.startswith("4 worker processes, which take less time from 10,000,000")
    workers, why = choice(8, 10**7, "cluster.memory_limit=600MiB")
    assert "one process would need" in why


def test_a_graph_whose_stages_fit_one_after_the_other_stays_in_one_process():
    size = GraphSize(20 * 10**6, 2 * 10**8, 16, 2, labelled=2 * 10**6)

    def planned(memory):
        settings = load_settings(overrides=[f"cluster.memory_limit={memory}"])
        return pipeline.estimate_counts(size, settings)

    # With reservoirs one after the other, since all together do not fit.
    need = planned(planned("1TiB").worker_memory - 1).worker_memory
    enough, less = planned(need), planned(need - 1)
    assert enough.workers == 1
    assert enough.client_memory + enough.worker_memory > need
    assert "one process would need" in dict(less.lines())["chosen"]


@pytest.mark.parametrize("asked", ["backend=gpu", "cluster.kind=cuda"])
def test_settings_that_need_a_gpu_plan_one(asked):
    size = GraphSize(10**6, 10**7, 8, 2, labelled=10**4)
    settings = load_settings(overrides=["cluster.memory_limit=64GiB", asked])
    plan = pipeline.estimate_counts(size, settings)
    assert plan.device_memory > 0
    assert plan.seconds is None


def test_tables_are_planned_for_gpus_that_are_there_or_set(small_graph):
    for kind in ("auto", "local"):
        settings = small_settings("backend=gpu", f"cluster.kind={kind}")
        with pytest.raises(SettingsError, match=r"no GPU .* set cluster\.device_mem"):
            pipeline.estimate(small_graph.sources, settings)
    there = small_settings("backend=gpu", "cluster.device_memory=60GiB")
    plan = pipeline.estimate(small_graph.sources, there)
    assert plan.device_limit == 60 * 2**30


def test_a_damaged_plan_is_found_and_made_again(tmp_path, small_graph):
    sources, settings = small_graph.sources, small_settings()
    run = with_graph(tmp_path / "run", sources, settings)
    path = tmp_path / "run" / PLAN
    path.write_text(path.read_text().replace('"nodes": 600', '"nodes": 601'))
    assert [found.path for found in verify(run.location)] == [str(path)]
    with pipeline.open_run(str(tmp_path / "run"), sources) as run:
        assert Plan.read(run) is None
        pipeline.prepare(run, sources, settings)
    assert plan_of(run)["planned"]["nodes"] == 600
