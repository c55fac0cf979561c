"""The generated examples: known truth, natural columns, labels as stated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.examples import PARTIES, infections, votes
from xnq_dist.graph.head import table_size
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.tables import Sources, open_table

Example = Callable[[Path, int], dict[str, str]]


def read(path: str) -> pa.Table:
    table = open_table(path, "table")
    names = list(table.schemas[table.files[0]])
    return pa.Table.from_batches([batch.rows for batch in table.batches(names)])


@pytest.fixture(scope="module", params=[votes, infections], ids=["votes", "infections"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Example, dict[str, str]]:
    return request.param, request.param(tmp_path_factory.mktemp("example"), 0)


def test_a_seed_gives_the_same_values(
    made: tuple[Example, dict[str, str]], tmp_path: Path
) -> None:
    example, paths = made
    again = example(tmp_path / "again", 0)
    other = example(tmp_path / "other", 1)
    for name in ("nodes", "edges", "memberships", "truth"):
        assert read(again[name]).equals(read(paths[name]))
    assert not read(other["nodes"]).equals(read(paths["nodes"]))


def test_labels_agree_with_the_truth_and_tables_with_each_other(
    made: tuple[Example, dict[str, str]],
) -> None:
    _, paths = made
    nodes, truth = read(paths["nodes"]), read(paths["truth"])
    assert nodes["node_id"].equals(truth["node_id"])
    known = nodes["label"].is_valid()
    assert nodes["label"].filter(known).equals(truth["label"].filter(known))
    ids = nodes["node_id"].combine_chunks()
    for name, columns in (("edges", ("src", "dst")), ("memberships", ("node_id",))):
        for column in columns:
            assert pc.all(pc.is_in(read(paths[name])[column], ids)).as_py()


def test_the_default_settings_read_the_tables(
    made: tuple[Example, dict[str, str]], tmp_path: Path
) -> None:
    _, paths = made
    sources = Sources(paths["nodes"], paths["edges"], paths["memberships"])
    settings = load_settings()
    graph = prepare(RunDirectory(tmp_path / "run"), sources, settings, 2)
    assert graph.facts["encoded"]["category"] >= 5
    assert graph.facts["encoded"]["missing"] >= 2
    planned = table_size(paths["nodes"], settings, "nodes")[1]
    assert graph.facts["n_features"] <= planned


def test_one_county_in_three_is_polled_at_random(tmp_path: Path) -> None:
    paths = votes(tmp_path, 3)
    nodes, truth = read(paths["nodes"]), read(paths["truth"])
    county = read(paths["memberships"])["community"].to_numpy()
    polled = nodes["label"].is_valid().to_numpy()
    number = np.array([int(name.split()[1]) for name in county])
    assert set(number[polled] % 3) == {0}
    assert polled[number % 3 == 0].mean() == pytest.approx(0.15, abs=0.03)
    assert set(truth["label"].to_pylist()) == set(PARTIES)


def test_infections_gather_where_they_began_and_tests_favour_the_infected(
    tmp_path: Path,
) -> None:
    paths = infections(tmp_path, 0)
    nodes, truth = pq.read_table(paths["nodes"]), pq.read_table(paths["truth"])
    infected = truth["label"].to_numpy() == "infected"
    assert 0.05 <= infected.mean() < 0.1
    tested = nodes["label"].is_valid().to_numpy()
    assert tested[infected].mean() > 5 * tested[~infected].mean()
    members = pq.read_table(paths["memberships"]).to_pandas()
    members["infected"] = infected[members["node_id"].str[-4:].astype(int)]
    share = members.groupby("community")["infected"].mean()
    assert share["district 05"] > 5 * infected.mean()
    assert share.min() == 0
    # Every person is in one district, and in one or two commuting areas.
    assert members.groupby("node_id").size().isin([2, 3]).all()
