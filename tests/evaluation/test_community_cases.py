"""Evaluation on real communities: sets, labels, scores, tables, a complete run."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from tests.conftest import small_settings, write_graph
from tests.evaluation.test_on_workers import begin
from tests.quantify.samples import members_of
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.progress import silent
from xnq_dist.core.records import QUANTIFIERS
from xnq_dist.core.store import Folder
from xnq_dist.evaluation import community_cases as stage
from xnq_dist.evaluation import real
from xnq_dist.evaluation.community_cases import (
    CasePlan,
    check_plan,
    evaluate_communities,
)
from xnq_dist.evaluation.community_tables import community_tables
from xnq_dist.evaluation.comparison import COMMUNITY_RESULTS, _publish
from xnq_dist.evaluation.designs import DESIGNS, LabelPool, draw_labels
from xnq_dist.evaluation.keep import keep
from xnq_dist.evaluation.methods.embedded import PlusScores
from xnq_dist.evaluation.real import TRIVIAL, Case, estimators_of, score_case
from xnq_dist.evaluation.regions import (
    REGIONS,
    draw_regions,
    draw_samples_by_class,
)
from xnq_dist.evaluation.rivals import RIVALS
from xnq_dist.quantify.interface import Communities


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


def blocks(n=600, groups=6, seed=0):
    """An undirected graph of blocks, with classes and blocks of its nodes."""
    rng = np.random.default_rng(seed)
    block = np.arange(n) * groups // n
    same = block[:, None] == block
    upper = np.triu(rng.random((n, n)) < np.where(same, 0.15, 0.01), 1)
    matrix = csr_array((upper | upper.T).astype(np.float32))
    share = np.linspace(0.1, 0.9, groups)[block]
    return matrix, (rng.random(n) < share).astype(np.int32), block


@pytest.mark.parametrize("family", ["bfs", "walk"])
def test_regions_are_connected_and_drawn_from_the_seed(family):
    matrix, _, _ = blocks()
    graph = nx.from_scipy_sparse_array(matrix)
    ((name, sets),) = draw_regions(family, matrix, 3).items()
    assert (name, len(sets)) == (family, 100)
    for s in range(len(sets)):
        members = members_of(sets, s)
        assert 50 <= len(members) <= 500
        assert len(np.unique(members)) == len(members)
        assert nx.is_connected(graph.subgraph(members.tolist()))
    again, other = (draw_regions(family, matrix, seed)[family] for seed in (3, 4))
    np.testing.assert_array_equal(again.members, sets.members)
    assert not np.array_equal(other.members, sets.members)


def test_other_kinds_are_what_their_names_say():
    matrix, _, _ = blocks()
    loops = csr_array(matrix + csr_array(np.eye(600, dtype=np.float32)))
    loops.sort_indices()
    followers = draw_regions("followers", loops, 3)["followers"]
    # The node itself is left out.
    neighbours = {frozenset(np.flatnonzero(row)) for row in matrix.toarray()}
    for s in range(len(followers)):
        assert frozenset(members_of(followers, s).tolist()) in neighbours
    scattered = draw_regions("random", matrix, 3)["random"]
    shares = np.bincount(scattered.members, minlength=600) / len(scattered)
    assert shares.std() < 0.08
    (everything,) = draw_regions("whole", matrix, 3).values()
    assert everything.members.tolist() == list(range(600))
    found = draw_regions("leiden", matrix, 3)
    assert list(found) == ["leiden 1", "leiden 3", "leiden 10"]
    parts = [
        set(members_of(found["leiden 3"], s)) for s in range(len(found["leiden 3"]))
    ]
    assert sorted(v for part in parts for v in part) == list(range(600))
    for name, sets in draw_regions("unions", matrix, 3).items():
        for s in range(len(sets)):
            union = set(members_of(sets, s))
            inside = [part for part in parts if part <= union]
            assert len(inside) == int(name.split()[-1])
            assert set().union(*inside) == union


def draw_case(share=0.3, seed=0):
    matrix, truth, block = blocks(seed=seed)
    rng = np.random.default_rng(seed)
    pool = LabelPool(truth, 2, block, matrix)
    labels = draw_labels("random", pool, share, seed)
    chance = np.clip(
        np.linspace(0.2, 0.8, 6)[block] + rng.normal(0, 0.1, 600), 0.02, 0.98
    )
    posteriors = np.stack([1 - chance, chance], axis=1)
    case = Case.of(truth, labels, posteriors, posteriors, ("no", "yes"))
    return case, matrix, block


@pytest.mark.parametrize("smallest", [500, 50])
def test_samples_have_the_prevalence_drawn(smallest):
    case, _, _ = draw_case()
    drawn = case.nodes.labels < 0
    sets = draw_samples_by_class(case.truth, 2, drawn, smallest, 2)
    assert len(sets) == 21 * 5
    assert (np.diff(sets.offsets).min() < 100) == (smallest == 50)
    shares = []
    for s in range(len(sets)):
        members = members_of(sets, s)
        assert len(np.unique(members)) == len(members)
        assert drawn[members].all()
        shares.append(case.truth[members].mean())
    by_prevalence = np.reshape(shares, (5, 21)).mean(axis=0)
    assert by_prevalence[0] == 0
    assert by_prevalence[-1] == 1
    assert (np.diff(by_prevalence) > -0.05).all()


def score(case, sets, matrix, block, names, drawn="random"):
    settings = small_settings("intervals.resamples=50", f"labels.drawn={drawn}")
    estimate = estimators_of(case, matrix, (block,), settings, names)
    return list(score_case(case, {"blocks": sets}, estimate))


def block_sets(block):
    return Communities.of([np.flatnonzero(block == b) for b in range(6)])


def test_scores_are_those_by_hand():
    case, matrix, block = draw_case()
    rows = score(case, block_sets(block), matrix, block, ["auto", "pcc"])
    assert {r["estimator"] for r in rows} == {"auto", "pcc", "floor", *TRIVIAL}
    errors, biases = [], []
    for b in range(6):
        free = (block == b) & (case.nodes.labels < 0)
        posteriors = case.nodes.posteriors[free, 1].astype(np.float64)
        off = posteriors.mean() - case.truth[free].mean()
        errors.append(abs(off))
        biases.append(off)
    (pcc,) = (r for r in rows if r["estimator"] == "pcc")
    (auto,) = (r for r in rows if r["estimator"] == "auto")
    assert (pcc["communities"], pcc["sizes"], pcc["labelled"], pcc["sets"]) == (
        "blocks",
        "50-100",
        True,
        6,
    )
    assert pcc["ae"] == pytest.approx(np.mean(errors))
    assert pcc["bias"] == pytest.approx(np.mean(biases))
    assert 0 < pcc["width"] < 0.5
    assert auto["coverage"] > 0.6
    assert "coverage" not in next(r for r in rows if r["estimator"] == "lab")


def test_intervals_follow_what_the_design_declares():
    case, matrix, block = draw_case()
    sets, names = block_sets(block), ["auto"]
    width = {}
    for drawn in ("unknown", "random", "by_place", "by_class"):
        rows = score(case, sets, matrix, block, names, drawn)
        (auto,) = (r for r in rows if r["estimator"] == "auto")
        width[drawn] = auto["width"]
    assert width["random"] == width["by_place"] < width["unknown"]
    assert width["random"] < width["by_class"] <= width["unknown"]


def test_rows_tell_sizes_and_communities_without_labels_apart():
    case, matrix, block = draw_case()
    free = np.flatnonzero(case.nodes.labels < 0)
    sets = Communities.of([free[:4], free[:7], free[:30], np.arange(100), free[:120]])
    rows = score(case, sets, matrix, block, ["pcc"])
    found = [
        (r["sizes"], r["labelled"], r["sets"]) for r in rows if r["estimator"] == "pcc"
    ]
    assert found == [
        ("5-20", False, 1),
        ("20-50", False, 1),
        ("50-100", True, 1),
        ("100-500", False, 1),
    ]


def test_every_quantifier_is_in_the_comparison():
    case, matrix, block = draw_case()
    rows = score(case, block_sets(block), matrix, block, None)
    errors = {r["estimator"]: r["ae"] for r in rows}
    assert set(errors) == {*QUANTIFIERS, "floor", *TRIVIAL}
    assert np.isfinite(list(errors.values())).all()
    assert errors["nacc"] != pytest.approx(errors["acc"], abs=1e-6)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return write_graph(
        tmp_path_factory.mktemp("graph"), nodes=500, edges=4000, labelled=1.0
    )


@pytest.fixture
def quick_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rivals without gradient boosting, which takes most of their time."""
    linear = [LogisticRegression()]
    monkeypatch.setattr("xnq_dist.evaluation.rivals._classifiers", lambda _: linear)


SETTINGS = ("reservoir.recurrent_scale=[1,3]",)
pytestmark = pytest.mark.usefixtures("no_trees", "quick_rivals")


@pytest.mark.faults
def test_interrupted_evaluation_goes_on_with_the_next_case(
    client, graph, tmp_path, monkeypatch
):
    work = begin(tmp_path / "run", graph, settings=small_settings(*SETTINGS))
    kinds = ("leiden", "walk", "by-class")
    plan = CasePlan(kinds, (0.5, 0.1), quantifiers=("auto", "pcc", "sld"), draws=1)
    asked = []
    real_posteriors = stage.plus_posteriors

    def breaking(*arguments):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(1)
        return real_posteriors(*arguments)

    monkeypatch.setattr(stage, "plus_posteriors", breaking)
    with pytest.raises(KeyboardInterrupt):
        evaluate_communities(client, work, plan)
    monkeypatch.setattr(
        stage, "plus_posteriors", lambda *a: asked.append(2) or real_posteriors(*a)
    )
    table = evaluate_communities(client, work, plan)["community_results"]
    # Four cases, of which two are in the folder.
    assert asked == [1, 1, 2, 2]
    rows = table.to_pylist()
    baselines = {*TRIVIAL, *RIVALS, "floor"}
    assert {r["estimator"] for r in rows} == {"auto", "pcc", "sld", *baselines}
    labels = {(r["design"], r["label_share"]): r["labels"] for r in rows}
    assert labels["random", 0.5] == 250
    assert 140 < labels["half", 0.5] < 210
    # Nothing is fitted again, also for other estimators and communities.
    monkeypatch.setattr(stage, "plus_posteriors", None)
    again = evaluate_communities(client, work, plan)
    assert again["community_results"].equals(table)
    other = evaluate_communities(
        client,
        work,
        CasePlan(("random", "whole"), (0.5, 0.1), quantifiers=("cc",), draws=1),
    )["community_results"]
    assert set(other["communities"].to_pylist()) == {"random", "whole"}

    out = tmp_path / "out"
    out.mkdir()
    keep(Folder.of(str(out / "small")), {"community_results": table}, "communities")
    (out / "tables").mkdir()
    (out / "tables" / "communities-outdated.md").write_text("of an earlier version")
    published = _publish(
        Folder.of(str(out)), COMMUNITY_RESULTS, community_tables, silent
    )
    assert published["rows"] == {"community_results": len(table)}
    whole = pq.read_table(out / "community_results.parquet")
    assert whole.equals(table)
    for title in (
        "Errors and intervals on real communities, random labels",
        "Errors and intervals on sets drawn by class",
        "Cells in which auto errs more than the best other estimator",
        "Designs of labels",
        "Intervals of auto by size of community",
    ):
        assert title in published["text"]
    files = sorted(path.name for path in (out / "tables").iterdir())
    assert "communities-ae.md" in files
    assert "communities-outdated.md" not in files


@pytest.mark.slow
def test_every_design_and_kind_is_evaluated_without_nodes_of_unknown_class(
    client, tmp_path
):
    folder = tmp_path / "graph"
    graph = write_graph(folder, nodes=500, edges=6000, labelled=0.8)
    names = [f"{kind} {k % 3}" for kind in ("dorm", "year") for k in range(500)]
    members = pa.table({"community": names, "node_id": [*range(500)] * 2})
    pq.write_table(members, folder / "memberships.parquet")
    given = str(folder / "memberships.parquet")
    work = begin(
        tmp_path / "run",
        graph,
        settings=small_settings(*SETTINGS),
        memberships=given,
    )
    kinds = (*REGIONS, "attribute", "given", "app")
    designs, asked = tuple(DESIGNS), ("pcc", "auto")
    plan = CasePlan(kinds, (0.2,), designs, asked, draws=1)
    table = evaluate_communities(client, work, plan)["community_results"]
    rows = [r for r in table.to_pylist() if r["estimator"] == "pcc"]
    made = {"leiden 1", "leiden 3", "leiden 10", "given dorm", "given year"}
    made |= {"unions of 2", "unions of 10"}
    made |= set(kinds) - {"leiden", "given", "unions"}
    for design in DESIGNS:
        found = {r["communities"] for r in rows if r["design"] == design}
        # In such a small graph, all of these can be too small.
        found |= {"leiden 10"}
        assert found == made - (set() if design == "random" else {"app"}), design
    assert set(table["graph_family"].to_pylist()) == {"small"}
    # The complete graph means the unlabelled nodes whose class is known.
    assert next(r for r in rows if r["communities"] == "whole")["sizes"] == "100-500"


def test_graphs_without_features_or_memberships_do_without_those_kinds(
    client, graph, tmp_path
):
    settings = small_settings(*SETTINGS, "columns.features=null")
    work = begin(tmp_path / "run", graph, settings=settings)
    plan = CasePlan(
        ("given", "attribute", "random"), (0.5,), ("random",), ("pcc",), draws=1
    )
    table = evaluate_communities(client, work, plan)["community_results"]
    assert set(table["communities"].to_pylist()) == {"random"}


def test_sets_that_are_all_too_small_are_an_error(client, graph, tmp_path, monkeypatch):
    work = begin(tmp_path / "run", graph, settings=small_settings())
    even = PlusScores(*np.zeros((2, 500, 2), np.float32), None)
    monkeypatch.setattr(real, "MIN_UNLABELLED", 10_000)
    monkeypatch.setattr(stage, "plus_posteriors", lambda *_: (even, 0.0))
    plan = CasePlan(("walk",), (0.5,), quantifiers=("cc",), draws=1)
    with pytest.raises(InputError, match="no community has enough unlabelled members"):
        evaluate_communities(client, work, plan)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kinds": ["given"]}, "no folder of --data has a memberships"),
        ({"label_shares": [0.0]}, "leaves no label to fit to or no node"),
        ({"label_shares": [1.0]}, "leaves no label to fit to or no node"),
    ],
)
def test_wrong_kinds_and_shares_are_refused_at_once(change, words):
    right = {"kinds": ["leiden"], "label_shares": [0.5]}
    check_plan(CasePlan(**right), [None])
    with pytest.raises(SettingsError, match=words):
        check_plan(CasePlan(**right | change), [None])
