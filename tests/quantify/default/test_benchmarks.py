"""Estimates raked to benchmarks, on run directories."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from distributed import Client
from scipy.special import ndtri

from tests.conftest import small_settings
from tests.quantify.default.test_auto import drawn, reference_from
from tests.quantify.samples import make_communities, make_nodes
from tests.quantify.test_node_weights import slow_covariance, with_weights
from tests.quantify.test_stage import answered, draw_memberships, make_run, of
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.settings import ColumnSettings
from xnq_dist.due import due_stages
from xnq_dist.graph.benchmark_table import BenchmarkRow, BenchmarkTable, read_benchmarks
from xnq_dist.pipeline import check_sources, open_run, prepare
from xnq_dist.quantify import stage as stage
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.benchmark_answers import Benchmarked
from xnq_dist.quantify.default.benchmarks import ChosenBenchmark, Targets
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.interface import combine
from xnq_dist.quantify.stage import quantify

AUTO = "quantifier=auto"
RAKED = ["benchmarked", "benchmarked_lower", "benchmarked_upper"]


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


def write_table(folder, **columns) -> str:
    path = folder / "benchmark.parquet"
    pq.write_table(pa.table(columns), path)
    return str(path)


def write_part(folder, part, name="part", **columns) -> str:
    path = folder / f"{name}.parquet"
    table = {"community": part, "node_id": np.arange(300), **columns}
    pq.write_table(pa.table(table), path)
    return str(path)


def totals_of(run, manifest):
    record = manifest.named("totals-")[0]
    return run.stage("quantify").read_table(record, "totals").to_pylist()


@pytest.mark.parametrize("labelled", ["count", "exclude"])
def test_groups_have_their_benchmarks_and_other_estimates_add_up_to_them(
    client, tmp_path, labelled
):
    made = make_run(tmp_path / "made")
    part = np.arange(300) * 13 % 17 % 5
    sources = of(made, memberships=write_part(tmp_path, part))
    plain = small_settings(AUTO, f"labelled={labelled}")
    before = quantify(made.run, sources, plain, client)
    raw = answered(made.run, before)
    assert raw["benchmarked"].null_count == raw.num_rows
    path = write_table(
        tmp_path,
        community=[None, "3", "0"],
        **{"class": ["1", "1", "0"]},
        share=[0.6, 0.55, 0.4],
    )
    settings = small_settings(AUTO, f"labelled={labelled}", f"benchmark={path}")
    manifest = quantify(made.run, sources, settings, client)
    left = made.run.stage("quantify").folder.names()
    assert sorted(left) == sorted(
        ["_manifest.json", *(record.name for record in manifest.files)]
    )
    table = answered(made.run, manifest)
    assert table.drop_columns(RAKED).equals(raw.drop_columns(RAKED))
    rows = table.to_pylist()
    expected = {3: [0.45, 0.55], 0: [0.4, 0.6]}
    own = "n_nodes" if labelled == "count" else "n_estimated"
    for k, total in enumerate(totals_of(made.run, manifest)):
        of_class = [row for row in rows if row["class"] == total["class"]]
        assert total["benchmarked"] == pytest.approx([0.4, 0.6][k], abs=1e-9)
        summed = sum(row[own] * row["benchmarked"] for row in of_class)
        assert summed / total[own] == pytest.approx(total["benchmarked"], abs=1e-9)
        for row in [total, *of_class]:
            low, value, high = (row[RAKED[at]] for at in (1, 0, 2))
            assert 0 <= low <= value <= high <= 1
            if row.get("community") in expected:
                assert value == pytest.approx(expected[row["community"]][k], abs=1e-9)
            if row is total or row["community"] in expected:
                assert low == value == high


def test_communities_apart_from_all_benchmarks_keep_their_bits(client, tmp_path):
    made = make_run(tmp_path / "made")
    part = np.arange(300) % 3
    sources = of(made, memberships=write_part(tmp_path, part))
    path = write_table(tmp_path, community=[1], **{"class": ["1"]}, share=[0.5])
    settings = small_settings(AUTO, f"benchmark={path}")
    rows = answered(made.run, quantify(made.run, sources, settings, client)).to_pylist()
    for row in rows:
        raw = [row["prevalence"], row["lower"], row["upper"]]
        assert ([row[name] for name in RAKED] == raw) == (row["community"] != 1)


def test_standard_errors_of_benchmarks_stay_in_the_intervals(client, tmp_path):
    made = make_run(tmp_path / "made")
    sources = of(made, memberships=write_part(tmp_path, np.arange(300) % 3))
    columns = {"community": [1], "class": ["1"], "share": [0.5]}
    widths = []
    for se in (0.0, 0.01, 0.02):
        path = write_table(tmp_path, **columns, se=[se])
        settings = small_settings(AUTO, "labels.drawn=random", f"benchmark={path}")
        manifest = quantify(made.run, sources, settings, client)
        rows = answered(made.run, manifest).to_pylist()
        half = float(ndtri(0.975)) * se
        for row in rows:
            if row["community"] == 1:
                assert row["benchmarked"] == pytest.approx(0.5, abs=1e-9)
                assert row["benchmarked_lower"] == pytest.approx(0.5 - half, abs=1e-9)
                assert row["benchmarked_upper"] == pytest.approx(0.5 + half, abs=1e-9)
        total = totals_of(made.run, manifest)[1]
        widths.append(total["benchmarked_upper"] - total["benchmarked_lower"])
    assert widths[0] <= widths[1] <= widths[2]
    assert widths[0] < widths[2]


def test_batches_and_partitions_keep_every_bit(client, tmp_path, monkeypatch):
    path, _ = draw_memberships(tmp_path)
    table = write_table(
        tmp_path,
        community=["set 003", "set 007", None],
        **{"class": [1, 1, 1]},
        share=[0.5, 0.6, 0.55],
    )
    settings = small_settings(AUTO, f"benchmark={table}")
    found = []
    for name, partitions in (("one", 3), ("two", 2)):
        made = make_run(tmp_path / name, partitions)
        sources = of(made, memberships=path)
        found.append(answered(made.run, quantify(made.run, sources, settings, client)))
        monkeypatch.setattr(stage, "MIN_MEMBERSHIPS", 100)
        monkeypatch.setattr(stage, "MAX_MEMBERSHIPS", 100)
    assert found[0].equals(found[1])


def test_counts_are_of_node_weights_where_nodes_have_them(client, tmp_path):
    made = make_run(tmp_path / "made")
    weights = np.random.default_rng(0).lognormal(0, 1, 300)
    with_weights(made, weights)
    part = np.arange(300) % 4
    parents = pa.array(np.where(part < 2, 10, 11))
    memberships = write_part(tmp_path, part, parent=parents)
    sources = of(made, memberships=memberships)
    size = weights[part < 2].sum()
    path = write_table(
        tmp_path,
        community=[10, 2],
        **{"class": ["1", "1"]},
        count=[0.6 * size, 0.5 * weights[part == 2].sum()],
    )
    settings = small_settings(AUTO, f"benchmark={path}", "columns.node_weight=persons")
    with open_run(str(made.run.location), sources) as run:
        prepare(
            run,
            sources,
            small_settings(
                f"benchmark={path}", AUTO, "partitions=3", "columns.node_weight=persons"
            ),
        )
    rows = answered(made.run, quantify(made.run, sources, settings, client)).to_pylist()
    ones = {row["community"]: row for row in rows if row["class"] == 1}
    assert ones[10]["benchmarked"] == pytest.approx(0.6, abs=1e-9)
    assert ones[2]["benchmarked"] == pytest.approx(0.5, abs=1e-9)
    for above, below in ((10, (0, 1)), (11, (2, 3))):
        summed = sum(ones[k]["weight"] * ones[k]["benchmarked"] for k in below)
        whole = ones[above]["weight"] * ones[above]["benchmarked"]
        assert summed == pytest.approx(whole, rel=1e-9)


def raked(nodes, reference, groups, table, sets, labelled="count"):
    """The raked estimates of some sets, and their inputs."""
    learnt = Learnt.of(nodes, reference, groups)
    classes = list(nodes.classes)
    chosen = ChosenBenchmark(np.arange(len(table.groups)) - (None in table.groups))
    named = [own for own in table.groups if own is not None]
    for code, name in enumerate(named):
        chosen.members[code] = sets[int(name)]
    labels, weights = nodes.labels, nodes.weights
    targets = Targets.of(table, classes, chosen, labels, weights, labelled)
    made = Benchmarked.of(nodes, reference, learnt, targets)
    again = Benchmarked.from_arrays(made.arrays())
    batch = make_communities(*sets)
    found = again.estimate(batch, nodes, reference, learnt, 0.95)
    return found, again, learnt, targets


@pytest.mark.parametrize("n_classes", [2, 3])
def test_variances_are_those_of_the_formula(n_classes):
    nodes, reference, groups, _ = drawn(n_classes)
    weights = np.random.default_rng(4).exponential(1, len(groups))
    groups = np.stack([groups, np.arange(len(groups)) // 9])
    nodes = dataclasses.replace(nodes, weights=weights)
    sets = [np.arange(0, 300), np.arange(200, 500), np.arange(250, 420), np.arange(600)]
    rows = [
        BenchmarkRow("0", "c1", 0.4, 0.01),
        BenchmarkRow("1", "c1", 0.35, 0.0),
        BenchmarkRow(None, "c1", 0.38, 0.0),
    ]
    table = BenchmarkTable("t", True, tuple(rows))
    found, made, learnt, targets = raked(nodes, reference, groups, table, sets)
    # Slow: posteriors after raking, and all sums node by node.
    f = nodes.posteriors.astype(np.float64)
    f /= f.sum(axis=1, keepdims=True)
    cell = made.tilt.cell
    f[cell >= 0] *= made.tilt.factors[cell[cell >= 0]]
    f /= f.sum(axis=1, keepdims=True)
    moved = dataclasses.replace(nodes, posteriors=f)
    members = targets.members
    own = [
        members.members[members.offsets[g] : members.offsets[g + 1]] for g in range(3)
    ]
    u, w = nodes.weights, f[:, 1] * (1 - f[:, 1])
    free = nodes.labels < 0

    def common(a, b):
        both = np.intersect1d(a, b)
        both = both[free[both]]
        return (u[both] * w[both]).sum()

    def total(a):
        return u[a].sum()

    # The labelled nodes' shares are those of the posteriors before raking.
    def slow(a, b):
        one = dataclasses.replace(moved, labels=nodes.labels)
        k = 0 if n_classes == 2 else 1
        p = nodes.posteriors.astype(np.float64)
        p /= p.sum(axis=1, keepdims=True)
        mixed = np.where(free[:, None], f, p)
        one = dataclasses.replace(one, posteriors=mixed)
        return slow_covariance(one, learnt, a, b, k, 1) * total(a) * total(b)

    h = np.array([[common(a, b) for b in own] for a in own])
    v = np.array([[slow(a, b) for b in own] for a in own])
    se = np.diag(targets.se[:, 1] * targets.sizes)
    assert se[1, 1] == pytest.approx(0.01 * total(sets[0]))
    for s, members in enumerate(sets):
        b = np.array([common(members, other) for other in own]) @ np.linalg.inv(h)
        cross = np.array([slow(members, other) for other in own])
        variance = slow(members, members) - 2 * b @ cross + b @ (v + se**2) @ b
        size = u[members[free[members]]].sum()
        np.testing.assert_allclose(
            found.sd[s, 1], np.sqrt(variance) / size, rtol=2e-3, atol=1e-5
        )
    answer = combine(make_communities(*sets), nodes, found, "count")
    columns = made.finish(answer, 0, 0.95)
    np.testing.assert_allclose(columns["benchmarked"][1, 1], 0.35, atol=1e-9)
    assert columns["benchmarked_lower"][1, 1] == columns["benchmarked_upper"][1, 1]
    assert columns["benchmarked_lower"][0, 1] < 0.4 < columns["benchmarked_upper"][0, 1]


def test_a_benchmark_of_the_complete_graph_removes_shared_errors_from_all_intervals():
    rng = np.random.default_rng(2)
    errors, covered, widths = [], [], []
    for _ in range(60):
        n = 1500
        groups = (np.arange(n) // 100).astype(np.int32)
        logits = rng.normal(-0.5, 1, n)
        shift = rng.normal(0, 0.7)  # of all nodes, and only few labels to show it
        truth = rng.random(n) < 1 / (1 + np.exp(-logits - shift))
        labels = np.where(rng.random(n) < 0.02, truth, -1)
        f = 1 / (1 + np.exp(-logits))
        nodes = make_nodes(np.stack([1 - f, f], axis=1), labels)
        reference = reference_from(nodes)
        sets = [np.flatnonzero(groups == g) for g in range(15)]
        whole = BenchmarkRow(None, "c1", float(truth.mean()), 0.0)
        table = BenchmarkTable("t", True, (whole,))
        found, _, learnt, _ = raked(nodes, reference, groups, table, sets)
        batch = make_communities(*sets)
        raw = Auto(learnt=learnt).estimate(batch, nodes, reference)
        shares = np.array([truth[own[labels[own] < 0]].mean() for own in sets])
        for each in (raw, found):
            errors.append(np.abs(each.prevalence[:, 1] - shares).mean())
            inside = (each.lower[:, 1] <= shares + 1e-9) & (
                shares - 1e-9 <= each.upper[:, 1]
            )
            covered.append(inside.mean())
            widths.append((each.upper - each.lower)[:, 1].mean())
    assert np.mean(errors[1::2]) < 0.6 * np.mean(errors[::2])
    assert np.mean(widths[1::2]) < np.mean(widths[::2])
    assert np.mean(covered[1::2]) >= 0.93


def test_the_same_benchmarks_in_another_table_reuse_the_stage(client, tmp_path):
    made = make_run(tmp_path / "made")
    sources = of(made, memberships=write_part(tmp_path, np.arange(300) % 3))
    columns = {"community": [1, 2], "class": [1, 0], "share": [0.5, 0.4]}
    first = write_table(tmp_path, **columns)
    manifest = quantify(
        made.run, sources, small_settings(AUTO, f"benchmark={first}"), client
    )
    turned = pa.table({name: each[::-1] for name, each in columns.items()})
    pacsv.write_csv(turned, tmp_path / "other.csv")
    settings = small_settings(AUTO, f"benchmark={tmp_path / 'other.csv'}")
    again = quantify(made.run, sources, settings, client)
    assert again.attempt == manifest.attempt
    columns["share"] = [0.5, 0.45]
    changed = write_table(tmp_path, **columns)
    settings = small_settings(AUTO, f"benchmark={changed}", "partitions=3")
    due = due_stages(made.run, sources, settings)
    assert "quantify" in due
    assert not {"graph", "labels"} & set(due)


BAD = {
    "an unknown community": (
        {"community": [9]},
        "names community '9', which is not among the communities",
    ),
    "an unknown class": ({"class": ["7"]}, "names class '7' .* use one of 0, 1"),
    "shares above one": (
        {"community": [1, 1], "class": [0, 1], "share": [0.7, 0.6]},
        "the shares of community '1' add up to 1.3 .* the sum must be at most 1",
    ),
    "shares of all classes below one": (
        {"community": [1, 1], "class": [0, 1], "share": [0.3, 0.6]},
        "the shares of all classes of community '1' add up to 0.9 .* add up to 1",
    ),
    "a share above one": ({"share": [12.0]}, "is 12 in row 1 .* share is from 0 to 1"),
    "a negative share": ({"share": [-0.1]}, "is -0.1 in row 1 .* not negative"),
    "no share": ({"share": pa.array([None], pa.float64())}, "is null in row 1"),
    "a share that is text": ({"share": ["12 %"]}, "is '12 %' in row 1"),
    "no class": ({"class": pa.array([None], pa.string())}, "'class' .* is null"),
    "a row twice": (
        {"community": [1, 1], "class": [1, 1], "share": [0.5, 0.5]},
        "has class '1' of community '1' twice, again in row 2",
    ),
    "a count above the size": (
        {"share": None, "count": [101]},
        "the count 101 of class '1' in community '1' is above its size, 100",
    ),
    "counts above the size": (
        {"community": [1, 1], "class": [0, 1], "share": None, "count": [60, 70]},
        "the counts of community '1' in .* add up to 130, but its size is 100",
    ),
    "shares and counts": (
        {"count": [5]},
        "has both of the columns 'share' and 'count'",
    ),
    "neither shares nor counts": ({"share": None}, "has none of the columns"),
    "fewer than are labelled": (
        {"share": [0.01]},
        r"in community '1' are labelled '1', but its benchmark is 1 ",
    ),
    "two groups that contradict each other": (
        {"community": [None, 1], "class": [0, 0], "share": [0.3, 0.7]},
        "of the whole graph and community '1' contradict each other",
    ),
    "no rows": (
        {
            "community": pa.array([], pa.int64()),
            "class": pa.array([], pa.string()),
            "share": pa.array([], pa.float64()),
        },
        "has no rows",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_unusable_tables_are_refused_before_anything_is_computed(tmp_path, case):
    changes, error = BAD[case]
    made = make_run(tmp_path / "made")
    table = {"community": [1], "class": ["1"], "share": [0.5], **changes}
    kept = {name: values for name, values in table.items() if values is not None}
    path = write_table(tmp_path, **kept)
    sources = of(made, memberships=write_part(tmp_path, np.arange(300) % 3))
    settings = small_settings(AUTO, f"benchmark={path}", "partitions=3")

    def check_and_prepare():
        check_sources(sources, settings)
        with open_run(str(made.run.location), sources) as run:
            prepare(run, sources, settings)

    with pytest.raises(InputError, match=error):
        check_and_prepare()


def test_a_missing_column_of_classes_is_named(tmp_path):
    path = write_table(tmp_path, community=[1], share=[0.5])
    with pytest.raises(InputError, match="has no column 'class'"):
        read_benchmarks(path, ColumnSettings())


def test_benchmarks_of_communities_yet_to_be_detected_are_refused(tmp_path):
    made = make_run(tmp_path / "made")
    path = write_table(tmp_path, community=[1], **{"class": ["1"]}, share=[0.5])
    settings = small_settings(AUTO, f"benchmark={path}", "communities=leiden")
    with pytest.raises(SettingsError, match="yet to be detected"):
        check_sources(made.graph.sources, settings)
    whole = write_table(tmp_path, **{"class": ["1"]}, share=[0.5])
    check_sources(made.graph.sources, small_settings(AUTO, f"benchmark={whole}"))


def test_other_quantifiers_than_auto_are_refused():
    with pytest.raises(SettingsError, match="benchmark needs quantifier = auto"):
        load_settings(overrides=["benchmark=b.csv", "quantifier=sld"])
