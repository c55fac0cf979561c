"""Random graphs as tables on disk, and a slow adjacency that defines the answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from hypothesis import strategies as st

from xnq_dist.core.config import load_settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import csr, layout
from xnq_dist.graph.prepare import prepare
from xnq_dist.graph.sources import Sources


@dataclass(frozen=True)
class Edges:
    """Rows of an edge table by position of the node, in canonical order."""

    n: int
    rows: list[tuple[int, int, float]]
    directed: bool
    weighted: bool
    duplicates: str

    def adjacency(self):
        """The rules, one row after the other."""
        given: dict[tuple[int, int], float] = {}
        for source, target, weight in self.rows:
            at = (target, source)
            weight = weight if self.weighted else 1.0
            if self.duplicates == "sum":
                given[at] = given.get(at, 0.0) + weight
            else:
                given[at] = weight
        whole = dict(given)
        if not self.directed:
            for (target, source), weight in given.items():
                whole.setdefault((source, target), weight)
        dense = np.zeros((self.n, self.n), np.float32)
        there = np.zeros((self.n, self.n), bool)
        for at, weight in whole.items():
            dense[at] = weight
            there[at] = True
        target, source = np.nonzero(there)
        indptr = np.searchsorted(target, np.arange(self.n + 1))
        return sp.csr_array(
            (dense[target, source], source, indptr), shape=(self.n, self.n)
        )


@st.composite
def edges(draw):
    n = draw(st.integers(2, 12))
    node = st.integers(0, n - 1)
    rows = draw(st.lists(st.tuples(node, node), min_size=1, max_size=40))
    duplicates = draw(st.sampled_from(["drop", "sum"]))
    weighted = draw(st.booleans())
    # Quarters: their sums are exact in every order. Dropped copies weigh the same.
    weights = draw(st.lists(st.integers(0, 12), min_size=len(rows), max_size=len(rows)))
    fixed: dict[tuple[int, int], float] = {}
    weighed = []
    for (source, target), quarter in zip(rows, weights, strict=True):
        weight = quarter / 4
        if duplicates == "drop":
            weight = fixed.setdefault((source, target), weight)
        weighed.append((source, target, weight))
    return Edges(
        n,
        weighed,
        draw(st.booleans()),
        weighted,
        duplicates,
    )


def csr_of(matrix, weighted=False):
    """A scipy matrix as the package holds it."""
    matrix = sp.csr_array(matrix)
    matrix.sort_indices()
    weights = matrix.data.astype(np.float32) if weighted else np.empty(0, np.float32)
    return csr.csr_of(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), weights
    )


def random_matrix(n, density, seed, symmetric=False):
    rng = np.random.default_rng(seed)
    there = rng.random((n, n)) < density
    if symmetric:
        there |= there.T
    return sp.csr_array(there.astype(np.float64))


def node_table(n, **columns):
    """Two classes, one feature; columns replace or add."""
    return pa.table(
        {
            "node_id": pa.array(range(n), pa.int64()),
            "label": pa.array([v % 2 for v in range(n)], pa.int64()),
            "features": pa.array(
                [[float(v), 0.5] for v in range(n)], pa.list_(pa.float32(), 2)
            ),
        }
        | columns
    )


def edge_table(rows=None, **columns):
    rows = [(0, 1), (1, 2), (2, 3)] if rows is None else rows
    source, target = ([row[end] for row in rows] for end in (0, 1))
    return pa.table({"src": source, "dst": target} | columns)


def written(place, table):
    """Location of a table: Parquet, CSV of a text, or a folder of several tables."""
    if isinstance(table, list):
        place.mkdir()
        for number, part in enumerate(table):
            written(place / str(number), part)
        return str(place)
    path = place.with_suffix(".csv" if isinstance(table, str) else ".parquet")
    if isinstance(table, str):
        path.write_text(table)
    else:
        pq.write_table(table, path)
    return str(path)


def run(folder, nodes, links, *overrides, partitions=2, **options):
    """Write the tables and prepare them; options are those of `prepare`."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = Sources(
        written(folder / "nodes", nodes), written(folder / "edges", links)
    )
    directory = RunDirectory(folder / "out")
    settings = load_settings(overrides=overrides)
    manifest = prepare(directory, sources, settings, partitions, **options)
    return directory.stage("graph"), manifest


def features_of(stage, manifest):
    """Features by canonical index, shape (N, F)."""
    numbers = range(manifest.facts["partitions"])
    parts = [layout.load_nodes(manifest, number) for number in numbers]
    rows = pa.concat_tables(parts).sort_by("index")["features"].to_pylist()
    return np.array(rows, np.float32)


def labels_of(folder):
    """The stage ``labels`` that `run` has left."""
    stage = RunDirectory(folder / "out").stage("labels")
    manifest = stage.manifest()
    assert manifest is not None
    return stage, manifest
