"""Small graphs, each with the settings of a run whose answers are recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["CASES", "Case", "write_tables"]

Numbers = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Case:
    """A graph and the settings of its run."""

    settings: tuple[str, ...] = ()
    graph: dict[str, Any] = field(default_factory=dict)
    """Arguments of `_tables`."""
    memberships: bool = False
    """Whether the run is passed the table of communities."""
    workers: int = 1
    """Local worker processes; 1: this process does all stages."""


SMALL = (
    "reservoir.dim=24",
    "reservoir.supersteps=6",
    "intervals.resamples=50",
)
XNQ = ("method=xnq", "reservoir.recurrent_scale=2.0", "reservoir.input_scale=0.5")

CASES = {
    "plain": Case(),
    "default_size": Case(("reservoir.dim=256", "reservoir.supersteps=auto")),
    "weighted": Case(("partitions=3",), {"weighted": True}),
    "directed": Case(
        ("input.directed=true", "input.duplicates=sum", "partitions=3"),
        {"weighted": True, "repeated": True},
    ),
    "string_ids": Case(("partitions=5",), {"text": True}, memberships=True),
    "hubs": Case(("partitions=3",), {"hubs": 4}, memberships=True),
    "isolated": Case(graph={"isolated": 0.4}),
    "seven_classes": Case(("partitions=3",), {"classes": 7}, memberships=True),
    "rare_class": Case(graph={"classes": 3, "rare": True}, memberships=True),
    "by_place": Case(("labels.drawn=by_place",), {"drawn": "place"}, True),
    "by_class": Case(("labels.drawn=by_class",), {"drawn": "class"}, True),
    "weighted_labels": Case(
        ("labels.drawn=weighted", "columns.label_weight=chance"),
        {"drawn": "class"},
        memberships=True,
    ),
    "communities_by_class": Case(
        ("memberships.drawn=by_class",), {"communities": "class"}, memberships=True
    ),
    "community_column": Case(("communities=column:town", "labelled=exclude")),
    "few_labels": Case(graph={"labelled": 0.04}, memberships=True),
    "text_features": Case(
        ("columns.features=[x0,x1,x2,town,member]", "features.scale=robust"),
        {"named": True},
    ),
    "graph_alone": Case(("columns.features=null", "reservoir.matrix=ring")),
    "roles_xnq": Case((*XNQ, "quantifier=sld", "partitions=3"), {"roles": True}),
    "half_precision_xnq": Case(
        (
            *XNQ,
            "quantifier=pacc",
            "exchange.dtype=float16",
            "reservoir.matrix=dense",
            "partitions=5",
        ),
        memberships=True,
    ),
    "searched_scales": Case(("method=xnq", "quantifier=pcc"), memberships=True),
    "streamed": Case(
        ("partitioner=stream", "partitions=5"), {"nodes": 900}, memberships=True
    ),
    "two_workers": Case(
        ("partitions=3", "checkpoint.every=2"), {"classes": 3}, True, workers=2
    ),
    "many_on_two_workers": Case(
        ("partitions=20", "partitioner=contiguous"),
        {"weighted": True, "nodes": 1500, "labelled": 0.2},
        workers=2,
    ),
}
"""Cases by name; a case is recorded once and then only read."""


def arguments(case: Case, folder: Path, out: Path) -> list[str]:
    """Arguments of the command line that run a case on its tables."""
    words = ["run", "--nodes", str(folder / "nodes.parquet")]
    words += ["--edges", str(folder / "edges.parquet"), "--out", str(out)]
    if case.memberships:
        words += ["--memberships", str(folder / "memberships.parquet")]
    where = [f"cluster.workers={case.workers}"] if case.workers > 1 else []
    kind = ["cluster.kind=local"] if case.workers > 1 else []
    for setting in (*SMALL, *kind, *where, *case.settings):
        words += ["--set", setting]
    return words


def write_tables(case: Case, folder: Path, seed: int) -> None:
    """Write the input tables of a case."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in _tables(seed, **case.graph).items():
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")


def _tables(
    seed: int,
    nodes: int = 400,
    classes: int = 2,
    labelled: float = 0.4,
    rare: bool = False,
    weighted: bool = False,
    repeated: bool = False,
    text: bool = False,
    named: bool = False,
    roles: bool = False,
    hubs: int = 0,
    isolated: float = 0.0,
    drawn: str = "random",
    communities: str = "town",
) -> dict[str, pa.Table]:
    """Nodes of towns, linked within towns and classes; some communities overlap."""
    rng = np.random.default_rng(seed)
    town = rng.integers(0, 8, nodes)
    share = np.full(classes, 1 / classes)
    if rare:
        share = np.array([0.03, *[0.97 / (classes - 1)] * (classes - 1)])
    truth = rng.choice(classes, nodes, p=share)
    truth = np.where(rng.random(nodes) < 0.3, town % classes, truth)
    source, target = _links(rng, town, truth, hubs, isolated)
    edges: dict[str, Any] = {"src": source, "dst": target}
    if weighted:
        edges["weight"] = rng.integers(1, 9, len(source)).astype(np.float32)
    if repeated:
        again = rng.integers(0, len(source), 60)
        edges = {
            name: np.concatenate([column, column[again]])
            for name, column in edges.items()
        }
    x = rng.random((nodes, 5)).astype(np.float32)
    x[:, 0] += 0.5 * truth
    x[:, 1] *= 100.0
    chance = np.full(nodes, labelled)
    if drawn == "place":
        chance = np.where(town < 4, 1.5, 0.5) * labelled
    elif drawn == "class":
        chance = np.where(truth == 0, 1.5, 0.5) * labelled
    mask = rng.random(nodes) >= chance
    id_of = np.arange(nodes) * 7 + 3
    names: Callable[[Numbers], pa.Array] = lambda at: pa.array(id_of[at])  # noqa: E731
    if text:
        names = lambda at: pa.array([f"user-{n:x}" for n in id_of[at]])  # noqa: E731
    table: dict[str, Any] = {
        "node_id": names(np.arange(nodes)),
        "label": pa.array(truth, mask=mask),
        "town": pa.array([f"town {n}" for n in town]),
    }
    if drawn == "class":
        table["chance"] = pa.array(1 / chance, mask=mask)
    if roles:
        used = np.where(rng.random(nodes) < 0.3, "calibration", "train")
        table["role"] = pa.array(used.tolist(), mask=mask)
    if named:
        table |= {f"x{n}": pa.array(x[:, n]) for n in range(3)}
        table["member"] = pa.array(rng.random(nodes) < 0.5)
    else:
        flat = pa.array(x.ravel())
        table["features"] = pa.FixedSizeListArray.from_arrays(flat, 5)
    order = rng.permutation(len(edges["src"]))
    rows = {name: column[order] for name, column in edges.items()}
    rows |= {name: names(rows[name]) for name in ("src", "dst")}
    return {
        "nodes": pa.table(table),
        "edges": pa.table(rows),
        "memberships": _memberships(rng, town, truth, communities, names),
    }


def _links(
    rng: np.random.Generator,
    town: Numbers,
    truth: Numbers,
    hubs: int,
    isolated: float,
) -> tuple[Numbers, Numbers]:
    nodes = len(town)
    first, second = rng.integers(0, nodes, (2, 12 * nodes))
    close = np.where(town[first] == town[second], 0.6, 0.04)
    alike = np.where(truth[first] == truth[second], 1.0, 0.4)
    kept = rng.random(12 * nodes) < close * alike
    source, target = first[kept], second[kept]
    if hubs:
        reached = rng.integers(0, nodes, (hubs, nodes // 2))
        source = np.concatenate([source, np.repeat(np.arange(hubs), nodes // 2)])
        target = np.concatenate([target, reached.ravel()])
    linked = rng.random(nodes) >= isolated
    kept = linked[source] & linked[target]
    pairs = np.unique(np.stack([source[kept], target[kept]]), axis=1)
    return pairs[0], pairs[1]


def _memberships(
    rng: np.random.Generator,
    town: Numbers,
    truth: Numbers,
    kind: str,
    names: Callable[[Numbers], pa.Array],
) -> pa.Table:
    """Each town, of half of the nodes a club, and one community of three members."""
    nodes = len(town)
    if kind == "class":
        chance = np.where(truth[:, None] == 0, np.arange(6) + 1, 6 - np.arange(6))
        club = (rng.random((nodes, 6)) < chance / 24).nonzero()
        return pa.table({"community": club[1], "node_id": names(club[0])})
    clubs = rng.permutation(nodes)[: nodes // 2]
    member = np.concatenate([np.arange(nodes), clubs, clubs[:3]])
    community = np.concatenate([town, 10 + clubs % 5, np.full(3, 99)])
    return pa.table({"community": community, "node_id": names(member)})
