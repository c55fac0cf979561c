"""Evaluation on real communities: sets, labels, scores, tables, a run of it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client
from scipy.sparse import csr_array

from tests.conftest import small_settings, write_graph
from tests.evaluation.test_run import begin
from xnq_dist.errors import InputError, SettingsError
from xnq_dist.evaluation import communities as stage
from xnq_dist.evaluation import real
from xnq_dist.evaluation.communities import Plan, check_families, evaluate_communities
from xnq_dist.evaluation.community_tables import (
    _figure,
    _marked,
    community_outputs,
    community_text,
)
from xnq_dist.evaluation.keep import (
    keep_communities,
    publish_communities,
    unpublish_communities,
)
from xnq_dist.evaluation.names import shown
from xnq_dist.evaluation.real import (
    ESTIMATORS,
    TRIVIAL,
    Case,
    draw_labels,
    draw_samples_by_class,
    half_of,
    score_case,
)
from xnq_dist.evaluation.regions import draw_regions, joined
from xnq_dist.quantify.importance import Sis, walk_matrix
from xnq_dist.quantify.sld import Sld
from xnq_dist.store import Folder


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


def blocks(n=600, groups=6, seed=0):
    """An undirected graph of blocks, its classes and its blocks."""
    rng = np.random.default_rng(seed)
    block = np.arange(n) * groups // n
    same = block[:, None] == block
    upper = np.triu(rng.random((n, n)) < np.where(same, 0.15, 0.01), 1)
    matrix = csr_array((upper | upper.T).astype(np.float32))
    share = np.linspace(0.1, 0.9, groups)[block]
    return matrix, (rng.random(n) < share).astype(np.int32), block


def members_of(sets, s):
    return sets.members[sets.offsets[s] : sets.offsets[s + 1]]


def test_regions_are_not_what_their_names_say():
    matrix, _, _ = blocks()
    graph = nx.from_scipy_sparse_array(matrix)
    for family in ("bfs", "walk"):
        (name, sets), *rest = draw_regions(family, matrix, 3).items()
        assert (name, rest, len(sets)) == (family, [], 100)
        for s in range(len(sets)):
            members = members_of(sets, s)
            assert 50 <= len(members) <= 500
            assert len(np.unique(members)) == len(members)
            assert nx.is_connected(graph.subgraph(members.tolist()))
        again = draw_regions(family, matrix, 3)[family]
        np.testing.assert_array_equal(again.members, sets.members)
        other = draw_regions(family, matrix, 4)[family]
        assert not np.array_equal(other.members, sets.members)
    ego = draw_regions("ego", matrix, 3)["ego"]
    for s in range(len(ego)):
        members = set(members_of(ego, s).tolist())
        assert any(members == {v, *graph[v]} for v in members)
    found = draw_regions("leiden", matrix, 3)
    assert list(found) == ["leiden 1", "leiden 3", "leiden 10"]
    for sets in found.values():
        assert sorted(sets.members.tolist()) == list(range(600))
    assert len(found["leiden 10"]) > len(found["leiden 1"])
    with pytest.raises(SettingsError, match="no communities 'ring'"):
        draw_regions("ring", matrix, 0)


def test_labels_are_drawn_elsewhere_or_too_few():
    truth = np.repeat(np.arange(3), [300, 295, 5]).astype(np.int32)
    truth[:20] = -1
    allowed = np.arange(600) % 2 == 0
    shown = draw_labels(truth, 3, 0.1, allowed, 1)
    known = shown >= 0
    assert not known[~allowed].any()
    assert not known[truth < 0].any()
    np.testing.assert_array_equal(shown[known], truth[known])
    assert 29 <= known.sum() <= 31
    assert (np.bincount(shown[known], minlength=3) >= 2).all()
    communities = np.repeat(np.arange(10), 60)
    half = half_of(communities, 0).reshape(10, 60)
    assert (half.all(axis=1) | ~half.any(axis=1)).all()
    assert half.all(axis=1).sum() == 5


def draw_case(share=0.3, seed=0):
    matrix, truth, block = blocks(seed=seed)
    rng = np.random.default_rng(seed)
    shown = draw_labels(truth, 2, share, np.ones(600, bool), seed)
    chance = np.clip(
        np.linspace(0.2, 0.8, 6)[block] + rng.normal(0, 0.1, 600), 0.02, 0.98
    )
    posteriors = np.stack([1 - chance, chance], axis=1)
    return Case.of(truth, shown, posteriors, ("no", "yes")), matrix, block


@pytest.mark.parametrize("among", [0, 25])
def test_samples_do_not_have_the_prevalence_drawn(among):
    case, _, _ = draw_case()
    sets = draw_samples_by_class(case, among, 2)
    assert len(sets) == 21 * 5
    shares = []
    for s in range(len(sets)):
        members = members_of(sets, s)
        assert len(np.unique(members)) == len(members)
        labelled = case.nodes.labels[members] >= 0
        assert labelled.any() == (among > 0)
        shares.append(case.truth[members].mean())
    by_prevalence = np.reshape(shares, (5, 21)).mean(axis=0)
    assert by_prevalence[0] == 0
    assert by_prevalence[-1] == 1
    assert (np.diff(by_prevalence) > -0.05).all()


def test_scores_differ_from_those_by_hand():
    case, matrix, block = draw_case()
    sets = joined([np.flatnonzero(block == b) for b in range(6)])
    rows = list(
        score_case(
            case,
            {"blocks": sets},
            matrix,
            block,
            small_settings(),
            ["auto", "pcc"],
            without_labels=False,
        )
    )
    found = {(r.estimator, r.sizes, r.metric): r for r in rows}
    assert {r.estimator for r in rows} == {"auto", "pcc", *TRIVIAL}
    errors, biases = [], []
    for b in range(6):
        free = (block == b) & (case.nodes.labels < 0)
        off = case.nodes.posteriors[free, 1].mean() - case.truth[free].mean()
        errors.append(abs(off))
        biases.append(off)
    assert found["pcc", "all", "ae"].value == pytest.approx(np.mean(errors))
    assert found["pcc", "all", "bias"].value == pytest.approx(np.mean(biases))
    assert found["pcc", "all", "ae"].sets == 6
    assert 0 < found["pcc", "all", "width"].value < 0.5
    assert found["pcc", "all", "coverage"].sets == 6
    assert ("lab", "all", "coverage") not in found
    assert found["auto", "all", "coverage"].value > 0.6
    assert found["auto", "all", "ae"].value < found["pcc", "all", "ae"].value
    sizes = [r for r in rows if (r.estimator, r.metric) == ("pcc", "ae")]
    of_sizes = [r for r in sizes if r.sizes != "all"]
    assert sum(r.sets for r in of_sizes) == 6
    # Every block has labels: nothing is left without.
    assert not list(
        score_case(case, {"blocks": sets}, matrix, block, small_settings(), None, True)
    )


def test_estimators_that_need_edges_are_not_in_the_comparison():
    case, matrix, block = draw_case()
    sets = joined([np.flatnonzero(block == b) for b in range(6)])
    rows = list(
        score_case(case, {"blocks": sets}, matrix, block, small_settings(), None, False)
    )
    errors = {
        r.estimator: r.value for r in rows if (r.sizes, r.metric) == ("all", "ae")
    }
    assert set(errors) == {*ESTIMATORS, *TRIVIAL}
    needed = ("nacc", "npacc", "sis_acc", "sis_pacc", "sis_nacc", "sis_npacc")
    assert set(needed) <= set(ESTIMATORS)
    assert np.isfinite(list(errors.values())).all()
    # By hand, from the parts: one that knows neighbours and weights, and one of edges
    # that go nowhere, which leave ACC as it is.
    whole = case.with_neighbours(matrix)
    answer = Sis("sis_npacc", walk_matrix(matrix)).estimate(
        sets, whole.nodes, whole.reference, "exclude"
    )
    off = []
    for b in range(6):
        free = (block == b) & (case.nodes.labels < 0)
        off.append(abs(answer.prevalence[b, 1] - case.truth[free].mean()))
    assert errors["sis_npacc"] == pytest.approx(np.mean(off))
    assert errors["sis_pacc"] != pytest.approx(errors["pacc"], abs=1e-6)
    nowhere = {
        r.estimator: r.value
        for r in score_case(
            case,
            {"blocks": sets},
            csr_array((600, 600)),
            block,
            small_settings(),
            ["acc", "nacc", "sis_acc", "sis_nacc"],
            False,
        )
        if (r.sizes, r.metric) == ("all", "ae")
    }
    for name in ("nacc", "sis_acc", "sis_nacc"):
        assert nowhere[name] == pytest.approx(nowhere["acc"], abs=1e-6)
    assert shown("sis_nacc") == "SIS-NACC"


def test_sld_held_back_by_nothing_is_not_sld():
    case, _, block = draw_case()
    sets = joined([np.flatnonzero(block == b) for b in range(6)])
    exact = Sld(1e-9, 100_000)
    sld = exact.estimate(sets, case.nodes, case.reference, "exclude").prevalence
    np.testing.assert_allclose(real._held_back(case, sets, 1e-9), sld, atol=2e-3)
    held = real._held_back(case, sets, 1e9)
    np.testing.assert_allclose(held, np.tile(case.reference.prior, (6, 1)), atol=1e-6)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return write_graph(
        tmp_path_factory.mktemp("graph"), nodes=500, edges=4000, labelled=1.0
    )


def test_broken_off_evaluation_does_cases_again(client, graph, tmp_path, monkeypatch):
    settings = small_settings(
        "evaluation.label_draws=1",
        "plus.boosting=never",
        "reservoir.recurrent_scale=[1,3]",
    )
    work = begin(tmp_path / "run", graph, settings=settings)
    plan = Plan(("leiden", "walk", "app+labels"), (0.5, 0.1), ("auto", "sld"))
    asked = []
    real_posteriors = stage._posteriors

    def breaking(*arguments):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(1)
        return real_posteriors(*arguments)

    monkeypatch.setattr(stage, "_posteriors", breaking)
    with pytest.raises(KeyboardInterrupt):
        evaluate_communities(client, work, plan)
    monkeypatch.setattr(
        stage, "_posteriors", lambda *a: asked.append(2) or real_posteriors(*a)
    )
    table = evaluate_communities(client, work, plan)
    # Four cases, two of them in the folder.
    assert asked == [1, 1, 2, 2]
    rows = table.to_pylist()
    assert {(r["labels"], r["label_share"]) for r in rows} >= {
        ("all", 0.5),
        ("all", 0.1),
    }
    assert {r["family"] for r in rows if r["labels"] == "half"} <= {
        "leiden 1",
        "leiden 3",
        "leiden 10",
        "walk",
    }
    assert {r["estimator"] for r in rows} == {"auto", "sld", *TRIVIAL}
    monkeypatch.setattr(stage, "_posteriors", None)
    assert evaluate_communities(client, work, plan).equals(table)

    out = Folder.of(str(tmp_path / "out"))
    out.create()
    keep_communities(out.child("small"), table)
    assert publish_communities(out).equals(table)
    whole = pq.read_table(tmp_path / "out" / "community_results.parquet")
    assert whole.num_rows == table.num_rows
    page = (tmp_path / "out" / "communities.html").read_text()
    assert "AE on real communities" in page
    assert "Intervals of auto" in page
    assert "Intervals of every quantifier" in page
    assert "paper" not in page
    assert (tmp_path / "out" / "tables" / "communities-ae.md").exists()
    assert "AE on samples drawn by class" in community_text(table)
    made = community_outputs(table)
    line = next(
        text
        for text in made["tables/communities-ae.md"].decode().splitlines()
        if text.startswith("| SLD |")
    )
    some = [
        r
        for r in rows
        if r["estimator"] == "sld"
        and (r["labels"], r["label_share"]) == ("all", 0.5)
        and (r["metric"], r["sizes"]) == ("ae", "all")
        and r["family"] != "app+labels"
    ]
    mean = sum(r["value"] * r["sets"] for r in some) / sum(r["sets"] for r in some)
    assert f"{mean:.3f}".lstrip("0") in line.split("|")[3]
    unpublish_communities(out)
    assert not (tmp_path / "out" / "communities.html").exists()
    assert not list((tmp_path / "out" / "tables").iterdir())


def test_share_that_leaves_nothing_is_taken(client, graph, tmp_path):
    work = begin(tmp_path / "run", graph, settings=small_settings())
    for share in (0.0, 1.0):
        with pytest.raises(SettingsError, match="leaves nothing to show or nothing"):
            evaluate_communities(client, work, Plan(("leiden",), (share,)))


def test_sets_that_are_all_too_small_make_an_empty_table(
    client, graph, tmp_path, monkeypatch
):
    settings = small_settings("evaluation.label_draws=1", "plus.boosting=never")
    work = begin(tmp_path / "run", graph, settings=settings)
    monkeypatch.setattr(real, "LEAST_UNLABELLED", 10_000)
    monkeypatch.setattr(stage, "_posteriors", lambda *_: np.full((500, 2), 0.5))
    with pytest.raises(InputError, match="no community has 20 unlabelled members"):
        evaluate_communities(client, work, Plan(("walk",), (0.5,), ("cc",)))


def test_wrong_names_are_found_late():
    with pytest.raises(SettingsError, match="no communities 'rings': choose of leiden"):
        check_families(["leiden", "rings"], None, None)
    with pytest.raises(SettingsError, match="no folder of --data has a memberships"):
        check_families(["given"], None, None)
    with pytest.raises(SettingsError, match="there is no quantifier 'guess'"):
        check_families(["leiden"], None, ["guess"])
    check_families(["leiden"], None, ["sld", "nacc", "sis_nacc"])


def test_figures_above_ten_lose_a_digit_or_the_largest_bias_is_best():
    assert [_figure(x) for x in (10.5, 20.123, 0.25, -0.25, -10.5)] == [
        "10.500",
        "20.123",
        ".250",
        "-.250",
        "-10.500",
    ]
    cells = _marked([[-0.2, 0.01, None]])[0]
    assert [cell.mark for cell in cells] == ["", "best", ""]
