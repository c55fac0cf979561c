"""`auto` on a run directory: groups, partitions, totals."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings
from tests.quantify.samples import make_communities
from tests.quantify.test_stage import PRIOR, answered, draw_memberships, make_run, of
from xnq_dist.graph import layout
from xnq_dist.groups.leiden import leiden
from xnq_dist.quantify import batches
from xnq_dist.quantify.default.auto import Auto
from xnq_dist.quantify.default.pooling import fit_weights, label_evidence
from xnq_dist.quantify.default.surroundings import learn_in_process
from xnq_dist.quantify.loading import load_groups, load_node_table, with_own_folds
from xnq_dist.quantify.stage import quantify


def read(run, manifest, name: str) -> pa.Table:
    record = manifest.named(f"{name}-")[0]
    return run.stage("quantify").read_table(record, name)


def variances(run, manifest, name="variances"):
    """An array of what `auto` has learnt."""
    return run.stage("quantify").read_arrays(manifest.named("learnt-")[0])[name]


def estimated(made, client, memberships, *changed):
    settings = small_settings("quantifier=auto", *changed)
    return quantify(made.run, of(made, memberships=memberships), settings, client)


def test_batches_and_partitions_keep_every_bit(made, client, tmp_path, monkeypatch):
    path, sets = draw_memberships(tmp_path)
    manifest = estimated(made, client, path)
    first = answered(made.run, manifest)
    left = made.run.stage("quantify").names()
    kept = [record.name for record in manifest.files]
    assert sorted(left) == sorted(["_manifest.json", *kept])
    names = [name.split("-")[0] for name in kept]
    assert names == ["prevalence", "totals", "learnt"]
    assert len(variances(made.run, manifest)) > 1
    monkeypatch.setattr(batches, "MIN_MEMBERSHIPS", 100)
    monkeypatch.setattr(batches, "MAX_MEMBERSHIPS", 100)
    other = make_run(tmp_path / "two", partitions=2)
    again = estimated(other, client, path)
    assert answered(other.run, again).equals(first)
    one, two = (
        read(each.run, kept, "totals")
        for each, kept in ((made, manifest), (other, again))
    )
    assert one.equals(two)
    labels = made.graph.labels
    for row in first.to_pylist():
        members = sets[row["community"]]
        known = labels[members][labels[members] >= 0]
        share = np.count_nonzero(known == int(row["class"])) / len(members)
        rest = 1 - len(known) / len(members)
        assert row["lower"] - 1e-9 <= row["prevalence"] <= row["upper"] + 1e-9
        # Known labels are counted, so they have no uncertainty.
        assert share - 1e-9 <= row["lower"]
        assert row["upper"] <= share + rest + 1e-9
        if len(known) == len(members):
            assert row["lower"] == row["upper"] == row["prevalence"]
            assert row["se"] == 0


@pytest.mark.parametrize(
    ("labelled", "drawn"),
    [("count", "unknown"), ("exclude", "random"), ("count", "by_class")],
)
def test_without_pooling_communities_add_up_to_the_totals_and_ignore_each_other(
    made, client, tmp_path, labelled, drawn
):
    part = np.random.default_rng(1).integers(0, 23, 300)
    table = pa.table({"community": part, "node_id": np.arange(300)})
    path = str(tmp_path / "part.parquet")
    chosen = "auto.pooled=false", f"labelled={labelled}", f"labels.drawn={drawn}"
    pq.write_table(table, path)
    manifest = estimated(made, client, path, *chosen)
    assert "pooled" not in manifest.facts
    rows = answered(made.run, manifest).to_pylist()
    totals = read(made.run, manifest, "totals").to_pylist()
    weight = "n_nodes" if labelled == "count" else "n_estimated"
    for total in totals:
        own = [row for row in rows if row["class"] == total["class"]]
        summed = sum(row[weight] * row["prevalence"] for row in own)
        assert summed / total[weight] == pytest.approx(total["prevalence"], abs=1e-9)
        assert total["lower"] < total["prevalence"] < total["upper"]
        # If labels may be biased, errors common to all communities do not average out.
        if drawn == "random":
            assert total["se"] < min(row["se"] for row in own)
        assert total["method"] == "auto"
        assert total["quality"] is not None
    pq.write_table(table.filter(pc.field("community") == 3), path)
    manifest = estimated(made, client, path, *chosen)
    alone = answered(made.run, manifest).to_pylist()
    assert alone == [row for row in rows if row["community"] == 3]
    assert read(made.run, manifest, "totals").to_pylist() == totals


@pytest.mark.parametrize("drawn", ["unknown", "random", "by_class"])
def test_stage_estimates_as_one_process(made, client, tmp_path, drawn):
    """The same from partitions on workers as from the whole adjacency here."""
    path, sets = draw_memberships(tmp_path)
    chosen = "labelled=exclude", f"labels.drawn={drawn}"
    table = answered(made.run, estimated(made, client, path, *chosen))
    nodes = load_node_table(made.run)
    manifest = made.run.stage("graph").manifest()
    adjacency = layout.read_adjacency(manifest)
    batch = make_communities(*(sets[name] for name in sorted(sets)))
    groups = tuple(
        leiden(adjacency, resolution, 0).astype(np.int32) for resolution in (3.0, 10.0)
    )
    settings = small_settings("quantifier=auto", *chosen)
    compared = with_own_folds(made.run, nodes)
    learnt, _ = learn_in_process(nodes, compared, adjacency, groups, settings)
    assert (learnt.tilt is None) == (drawn == "random")
    parts = fit_weights(label_evidence(batch, nodes))
    found = Auto(learnt=learnt, parts=parts).estimate(batch, nodes)
    for name, values in (
        ("prevalence", found.prevalence),
        ("lower", found.lower),
        ("upper", found.upper),
        ("se", found.sd),
    ):
        own = table[name].to_numpy(zero_copy_only=False)
        np.testing.assert_array_equal(own, values.ravel())
    if drawn == "random":
        points = Auto(parts=parts).estimate(batch, nodes).prevalence
        np.testing.assert_array_equal(points, found.prevalence)
        former = Auto().estimate(batch, nodes).prevalence
        assert not np.array_equal(points, former)
    facts = made.run.complete("quantify").facts["pooled"]
    assert facts["weights"] == parts.tolist()
    assert facts["spread"] > 0
    known = (made.graph.labels[members] >= 0 for members in sets.values())
    assert facts["communities"] == sum(some.any() for some in known)


def test_totals_report_how_labels_were_chosen(made, client, tmp_path, caplog):
    path, _ = draw_memberships(tmp_path, 3)
    with caplog.at_level("INFO"):
        manifest = estimated(made, client, path)
    rows = read(made.run, manifest, "totals").to_pylist()
    known = manifest.facts["labels"]
    for row, answer in zip(rows, known["answers"], strict=True):
        assert row["drawn"] == "unknown"
        assert row["verdict"] == known["verdict"]
        assert row["detectable_factor"] > 1
        assert row["bias"] == pytest.approx(answer["bias"])
        share = row["weight_by_class"]
        mixed = (1 - share) * row["if_random"] + share * row["if_by_class"]
        assert row["prevalence"] == pytest.approx(mixed)
        ends = [row[f"if_{name}_lower"] for name in ("random", "by_class")]
        assert row["lower"] == pytest.approx(min(ends))
        ends = [row[f"if_{name}_upper"] for name in ("random", "by_class")]
        assert row["upper"] == pytest.approx(max(ends))
    assert sum(row["bias"] for row in rows) == pytest.approx(0, abs=1e-9)
    assert "Nothing shows that the labelled nodes were chosen by class" in caplog.text
    # With a declaration there is no second scenario, but still a verdict.
    manifest = estimated(made, client, path, "labels.drawn=random")
    for row, before in zip(
        read(made.run, manifest, "totals").to_pylist(), rows, strict=True
    ):
        assert row["verdict"] == before["verdict"]
        assert row["if_by_class"] is None
        for end in ("prevalence", "lower", "upper"):
            name = "if_random" if end == "prevalence" else f"if_random_{end}"
            assert row[end] == row[name] == before[name]
    # Other quantifiers have totals without a study of the labels.
    manifest = estimated(made, client, path, "quantifier=sld")
    row = read(made.run, manifest, "totals").to_pylist()[0]
    assert row["verdict"] is None
    assert row["drawn"] == "unknown"


def test_known_shares_of_the_complete_graph_are_met(made, client, tmp_path):
    path, _ = draw_memberships(tmp_path, 3)
    manifest = estimated(made, client, path, "labels.prior={0: 0.55, 1: 0.45}")
    totals = read(made.run, manifest, "totals")
    shares = totals["prevalence"].to_pylist()
    assert shares == pytest.approx([0.55, 0.45], abs=1e-9)
    bias = totals["bias"].to_pylist()
    assert bias[1] > 0 > bias[0]


def test_posteriors_of_held_out_groups_replace_the_bound(client, tmp_path):
    made = make_run(tmp_path / "made")
    path, _ = draw_memberships(tmp_path, 3)
    bound = variances(made.run, estimated(made, client, path), "without")
    stage = made.run.stage("readout")
    groups = load_groups(made.run)
    known = np.flatnonzero(made.graph.labels >= 0)
    made.run.stage("quantify").delete_folder()
    attempt = stage.begin()
    files = [
        attempt.write_arrays("groups", groups=groups.links[0], degree=groups.degree),
        attempt.write_arrays("held", index=known, posterior=made.posteriors[known]),
    ]
    attempt.commit(files, {}, {"prior": PRIOR})
    measured = variances(made.run, estimated(made, client, path), "without")
    assert not np.array_equal(measured, bound)
