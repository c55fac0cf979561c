"""Hierarchies of communities: rows of the parents, and levels that add up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from tests.conftest import small_settings
from tests.quantify.test_stage import answered, make_run, of
from xnq_dist.core.errors import InputError
from xnq_dist.graph.ids import NodeIds
from xnq_dist.quantify.hierarchy import Hierarchy, ParentPairs
from xnq_dist.quantify.stage import quantify

AUTO = "quantifier=auto"


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


def town_of(nodes: np.ndarray) -> np.ndarray:
    return np.char.add("town ", (nodes % 7).astype(str))


def area_of(town: np.ndarray) -> np.ndarray:
    return np.where(town <= "town 2", "north", "south")


def write_members(folder, **columns) -> str:
    path = folder / "members.parquet"
    pq.write_table(pa.table(columns), path)
    return str(path)


def rows_of(table: pa.Table) -> dict:
    return {(row["community"], row["class"]): row for row in table.to_pylist()}


def check_levels(rows: dict) -> None:
    names = sorted({name for name, _ in rows})
    assert names == ["land", "north", "south", *(f"town {k}" for k in range(7))]
    for name in ("land", "north", "south"):
        for code in (0, 1):
            own = rows[name, code]
            below = [
                r for (_, c), r in rows.items() if r["parent"] == name and c == code
            ]
            assert own["n_nodes"] == sum(r["n_nodes"] for r in below)
            summed = sum(r["n_nodes"] * r["prevalence"] for r in below)
            assert summed / own["n_nodes"] == pytest.approx(own["prevalence"], abs=1e-9)
            assert own["se"] <= max(r["se"] for r in below)
    assert rows["land", 0]["n_nodes"] == 300
    assert rows["land", 0]["parent"] is None
    assert rows["town 3", 1]["parent"] == "south"


def test_levels_add_up_from_a_table_of_parents(client, tmp_path, caplog):
    made = make_run(tmp_path)
    nodes = np.arange(300)
    path = write_members(tmp_path, community=town_of(nodes), node_id=nodes)
    towns = np.unique(town_of(nodes))
    parents = pa.table(
        {
            "community": [*towns, "north", "south", "elsewhere"],
            "parent": [*area_of(towns), "land", "land", "land"],
        }
    )
    pq.write_table(parents, tmp_path / "parents.parquet")
    settings = small_settings(AUTO, f"memberships.parents={tmp_path}/parents.parquet")
    sources = of(made, memberships=path)
    manifest = quantify(made.run, sources, settings, client)
    check_levels(rows_of(answered(made.run, manifest)))
    assert manifest.facts["n_parents"] == 3
    assert manifest.facts["parents_that_do_not_add_up"] == 0
    assert manifest.facts["without_members"] == 1
    assert "1 communities of the table of parents" in caplog.text
    assert "(elsewhere first)" in caplog.text
    assert quantify(made.run, sources, settings, client) == manifest
    other = parents.set_column(1, "parent", pa.array(["north"] * 9 + ["land"]))
    pq.write_table(other.slice(0, 7), tmp_path / "parents.parquet")
    again = quantify(made.run, sources, settings, client)
    assert again.attempt != manifest.attempt
    assert again.facts["n_parents"] == 1


def test_levels_add_up_from_a_column_of_parents(client, tmp_path):
    made = make_run(tmp_path)
    nodes = np.arange(300)
    towns = town_of(nodes)
    areas = area_of(towns)
    columns = {
        # Rows without members of their own level name the level above.
        "community": np.concatenate([towns, areas]),
        "node_id": np.concatenate([nodes, nodes]),
        "parent": np.concatenate([areas, ["land"] * 300]),
    }
    path = write_members(tmp_path, **columns)
    sources = of(made, memberships=path)
    manifest = quantify(made.run, sources, small_settings(AUTO), client)
    check_levels(rows_of(answered(made.run, manifest)))


def test_parents_with_other_members_are_named(client, tmp_path, caplog):
    made = make_run(tmp_path)
    columns = {
        "community": ["a", "b", "both"],
        "node_id": [1, 1, 2],
        "parent": pa.array(["both", "both", None], pa.string()),
    }
    path = write_members(tmp_path, **columns)
    sources = of(made, memberships=path)
    manifest = quantify(made.run, sources, small_settings(AUTO), client)
    rows = rows_of(answered(made.run, manifest))
    assert rows["both", 0]["n_nodes"] == 2
    assert manifest.facts["parents_that_do_not_add_up"] == 0
    columns["community"][1] = "a"
    columns["node_id"][1] = 3
    path = write_members(tmp_path, **columns)
    manifest = quantify(made.run, sources, small_settings(AUTO), client)
    assert manifest.facts["parents_that_do_not_add_up"] == 1
    assert "(both first)" in caplog.text


def hierarchy(child: list[str], parent: list[str]) -> Hierarchy:
    names = NodeIds.from_column(pa.chunked_array([sorted({*child, *parent})]))[0]
    pairs = ParentPairs(pa.array(child), pa.array(parent), "parents.csv")
    return Hierarchy.of(pairs, names)


def test_cycles_and_second_parents_are_refused():
    with pytest.raises(InputError, match="'a' has 2 parents in"):
        hierarchy(["a", "a"], ["b", "c"])
    with pytest.raises(InputError, match="above itself"):
        hierarchy(["a", "b", "c"], ["b", "c", "a"])
    with pytest.raises(InputError, match="above itself"):
        hierarchy(["a"], ["a"])
    assert hierarchy(["a", "b"], ["b", "c"]).parent.tolist() == [1, 2, -1]


def test_parents_of_another_type_are_refused(client, tmp_path):
    made = make_run(tmp_path)
    path = write_members(tmp_path, community=[1, 2], node_id=[1, 2], parent=["x", "y"])
    with pytest.raises(InputError, match="different types"):
        quantify(made.run, of(made, memberships=path), small_settings(AUTO), client)
    path = write_members(tmp_path, community=[1, 2], node_id=[1, 2])
    settings = small_settings(AUTO, "columns.parent=above")
    with pytest.raises(InputError, match="above"):
        quantify(made.run, of(made, memberships=path), settings, client)
