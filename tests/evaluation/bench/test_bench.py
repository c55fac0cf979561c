"""The harness of the benchmarks: rows, ratios, comparison with a record."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings
from xnq_dist import pipeline
from xnq_dist.app.cli import main
from xnq_dist.core import schemas
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError, SettingsError, StageError
from xnq_dist.evaluation.bench.harness import OURS, Bench, Benchmark
from xnq_dist.evaluation.bench.pipeline_runs import cost_of_an_edge
from xnq_dist.evaluation.bench.runner import (
    BENCHMARKS,
    compare,
    read_record,
    run_benchmarks,
)
from xnq_dist.plan import GraphSize, Workers, add_up


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def toy(bench: Bench) -> None:
    """Two quantities, another library, two ratios of known value."""
    for what, value in ((OURS, 2.0), ("peer", 6.0)):
        for number in range(bench.repeat):
            bench.record("a case", "time", what, value + number, "s", number, "a note")
    middle = bench.median("a case", "time", "peer")
    bench.ratio("peer over ours", middle / 2.0, "more", 3.0)
    bench.ratio("excess", 0.5, "less", 0.1)


TOY = {"toy": Benchmark("toy", "a toy", f"{__name__}:toy")}


def report_of(tmp_path=None, repeat=1):
    out = None if tmp_path is None else str(tmp_path)
    return run_benchmarks(["toy"], "small", repeat, out, TOY)


def test_rows_are_tidy(tmp_path):
    report = report_of(tmp_path, repeat=3)
    table = pq.read_table(tmp_path / "benchmarks.parquet")
    entry = schemas.TABLES["benchmarks"]
    assert table.column_names == [column.name for column in entry.columns]
    assert table.num_rows == 6
    first = table.to_pylist()[0]
    assert first == {
        "benchmark": "toy",
        "size": "small",
        "case": "a case",
        "quantity": "time",
        "what": OURS,
        "value": 2.0,
        "unit": "s",
        "repeat": 0,
        "note": "a note",
    }
    machine = json.loads(table.schema.metadata[b"machine"])
    assert {"processor", "cores", "memory_bytes", "versions", "blas", "date"} <= set(
        machine
    )
    text = report.text()
    assert "7.00 s" in text  # the other library's median
    assert "(goal: at least 3.00; met)" in text
    assert "missed" in text


def test_the_record_in_the_repository_is_of_known_benchmarks():
    record = read_record(Path(__file__).parents[2] / "benchmarks" / "recorded.json")
    assert record["ratios"]
    assert {ratio["benchmark"] for ratio in record["ratios"]} <= {*BENCHMARKS}


def test_worse_ratios_are_reported(tmp_path):
    report_of(tmp_path)
    record = read_record(tmp_path / "benchmarks.json")
    slower, unmatched = compare(report_of(), record)
    assert slower == unmatched == []
    record["ratios"][0]["value"] *= 1.3  # "more" is better: ours is now worse
    record["ratios"][1]["value"] /= 1.2  # worse, but within the bound
    slower, _ = compare(report_of(), record)
    assert len(slower) == 1
    assert "toy: peer over ours got slower: 3.00, recorded 3.90" in slower[0]
    record["ratios"][1]["value"] /= 1.2
    assert len(compare(report_of(), record)[0]) == 2
    # Improvements, and ratios of the other size, are not compared.
    record["ratios"][0]["value"], record["ratios"][1]["size"] = 0.1, "full"
    slower, unmatched = compare(report_of(), record)
    assert slower == []
    assert unmatched == ["toy: excess (small) has no recorded value"]
    # NaN counts as slower.
    record["ratios"].append(record["ratios"][0] | {"name": "peer that is gone"})
    record["ratios"][0]["value"] = float("nan")
    slower, unmatched = compare(report_of(), record)
    assert len(slower) == 1
    assert "toy: peer that is gone (small) was recorded" in unmatched[1]


def test_command_line_prints_the_table_and_worse_ratios(tmp_path, capsys):
    out = str(tmp_path / "out")
    assert command("bench", "sld", "--repeat", "1", "--out", out, "--json") == 0
    shown = capsys.readouterr()
    assert "2,000 communities of about 100" in shown.err
    record = json.loads(shown.out)
    names = {ratio["name"] for ratio in record["ratios"]}
    assert "one giant community over one sum of it" in names
    table = pq.read_table(tmp_path / "out" / "benchmarks.parquet")
    assert set(table["benchmark"].to_pylist()) == {"sld"}
    path = tmp_path / "doctored.json"
    for ratio in record["ratios"]:
        ratio["value"] *= 1e3 if ratio["better"] == "more" else 1e-3
    path.write_text(json.dumps(record))
    again = ("bench", "sld", "--repeat", "1", "--against", str(path))
    assert command(*again) == 1
    assert "got slower" in capsys.readouterr().out


def test_bad_names_and_records_end_in_one_sentence(tmp_path, capsys):
    assert command("bench", "nonsense") == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "there is no benchmark 'nonsense': choose from sld" in said
    for text in ("{", "[]", '{"ratios": [{"name": "x"}]}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InputError, match="earlier --out"):
            read_record(tmp_path / "bad.json")
    with pytest.raises(SettingsError, match="choose small or full"):
        run_benchmarks(["toy"], "huge", 1, None, TOY)
    with pytest.raises(SettingsError, match="at least 1"):
        run_benchmarks(["toy"], "small", 0, None, TOY)


def test_every_benchmark_can_be_loaded():
    for entry in BENCHMARKS.values():
        assert callable(entry.load())
        assert entry.title


def test_memory_of_a_child_process_is_its_own(tmp_path):
    bench = Bench("toy", "small", 1, tmp_path)
    found = bench.child("builtins:dict", {"value": 4.0})
    assert found["value"] == 4.0
    assert 0 < found["base_memory"] <= found["peak_memory"]
    with pytest.raises(StageError, match="ended with status 1"):
        bench.child("math:sqrt", {"wrong": 1.0})


def test_peers_of_the_readout_stop_at_the_same_loss(tmp_path):
    report = run_benchmarks(["readout"], "small", 1)
    excess = [r for r in report.rows if r.quantity == "relative excess of the loss"]
    assert {row.what for row in excess} > {OURS}
    assert all(0 <= row.value < 1e-9 for row in excess)


def test_estimate_takes_counts_of_an_absent_graph(capsys):
    many = ("estimate", "--nodes", "111e6", "--edges", "1.6e9", "--json")
    where = ("cluster.workers=8", "cluster.memory_limit=400GiB", "reservoir.dim=64")
    sets = [part for key in where for part in ("--set", key)]
    assert command(*many, *sets, "--device", "gpu") == 0
    shown = capsys.readouterr()
    assert "GPUs were not measured" in shown.err
    plan = json.loads(shown.out)
    assert plan["nodes"] == 111_000_000
    assert plan["workers"] == 8
    assert plan["seconds"] is None
    assert command(*many, *sets, "--device", "abacus") == 2
    assert command("estimate", "--nodes", "5", "--edges", "e.parquet") == 2
    assert "give two numbers or two" in capsys.readouterr().err


def test_plan_of_a_partitioned_graph_is_that_of_its_stage(tmp_path, small_graph):
    settings = small_settings("partitions=3")
    with pipeline.open_run(str(tmp_path / "run"), small_graph.sources) as run:
        graph = pipeline.prepare(run, small_graph.sources, settings)
    size = pipeline.size_of(graph, 2, run.stage("graph"))
    facts = graph.facts
    plan = add_up(size, settings, 3, Workers(2, 1, 2**31))
    assert plan.halo_rows == sum(facts["halo"])
    assert not plan.halo_is_bound
    assert plan.edges == facts["n_edges"]


MEASURED = {
    # Two partitions on two workers, d' = 512: bytes of the busiest worker, the client
    # and the run directory at its largest.
    "generated": (
        GraphSize(20_000, 400_138, 8, 2, 2_000, (6_563, 6_562), 614_489),
        (620_482_560, 472_117_248, 65_219_599),
    ),
    "twitch-de": (
        GraphSize(9_498, 315_774, 128, 2, 9_498, (3_748, 3_748), 2_738_123),
        (719_536_128, 510_570_496, 57_717_296),
    ),
}


@pytest.mark.parametrize("case", MEASURED)
def test_plan_is_within_a_quarter_of_the_measured(case):
    size, (worker, client, disk) = MEASURED[case]
    settings = load_settings(overrides=["partitions=2", "reservoir.dim=512"])
    plan = add_up(size, settings, 2, Workers(2, 1, 2**31), detects=True)
    for planned, measured in (
        (plan.worker_memory, worker),
        (plan.client_memory, client),
        (plan.run_disk, disk),
    ):
        assert 0.8 <= planned / measured <= 1.25


def test_fixed_cost_is_kept_out_of_the_cost_of_an_edge():
    def run(edges: int, embed: float, publish: float) -> dict[str, object]:
        stages = {
            "embed": {"seconds": embed, "cpu": 2 * embed},
            "publish": {"seconds": publish, "cpu": publish},
        }
        return {"edges": edges, "stages": stages}

    fixed, larger = run(100, 3.0, 1.0), run(1100, 5.0, 1.5)
    found = cost_of_an_edge(larger, fixed, "seconds")
    assert found == pytest.approx({"embed": 2e-3, "publish": 5e-4, "all": 2.5e-3})
    assert cost_of_an_edge(larger, fixed, "cpu")["embed"] == pytest.approx(4e-3)
    assert set(cost_of_an_edge(fixed | {"edges": 7}, fixed, "cpu").values()) == {0.0}


def test_the_larger_graphs_cost_of_an_edge_is_compared_with_the_smallers(monkeypatch):
    def canned(self, function, arguments):
        if function.endswith("generate_graph"):
            return {"edges": 5 * arguments["nodes"], "seconds": 1.0}
        edges = 10 * int(Path(arguments["graph"]).name.partition("-")[2])
        one = {"client_memory": 5.0, "worker_memory": 7.0 * edges}
        return {
            "stages": {"graph": {"seconds": 2 + edges, "cpu": 3 + 2 * edges, **one}},
            "edges": edges,
            "measured": {"worker_memory": 7.0 * edges, "run_disk": 9},
            "limit": 10**6,
            "planned": {"client_memory": 6, "worker_memory": 8},
        }

    monkeypatch.setattr(Bench, "child", canned)
    report = run_benchmarks(["scale"], "small", 1)
    ratios = {ratio.name: ratio.value for ratio in report.ratios}
    for what in ("time", "processor time"):
        for stage in ("graph", "all"):
            name = f"{what} of an edge, {stage}, larger over smaller graph"
            assert ratios.pop(name) == pytest.approx(1.0)
    assert ratios == {"peak of a worker over its limit": pytest.approx(0.42)}
    assert len({row.case for row in report.rows}) == 3


@pytest.mark.slow
def test_every_stage_of_the_pipeline_is_measured():
    report = run_benchmarks(["scale"], "small", 1)
    there = {row.quantity for row in report.rows}
    for stage in ("graph", "embed", "readout", "quantify", "publish"):
        for quantity in (f"time of {stage}", f"processor time of {stage}"):
            assert quantity in there
    assert "peak of worker, embed" in there
    over = [ratio for ratio in report.ratios if ratio.aim == 1.15]
    assert over
    assert all(ratio.met for ratio in over)
