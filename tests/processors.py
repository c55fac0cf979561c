"""A small run in a new process for `test_processors`, with its results as arrays.

``python -m tests.processors GRAPH OUT`` embeds the graph with each matrix in one and in
three partitions, quantifies it with the default method, and writes ``OUT/arrays.npz``.
With ``--dense`` it embeds with the dense matrix only, in three partitions.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from distributed import Client
from threadpoolctl import threadpool_info

from tests.conftest import small_settings, thread_workers, with_graph
from tests.test_pipeline import whole_line
from xnq_dist import pipeline
from xnq_dist.graph.sources import Sources

CHAOTIC = (
    "reservoir.dim=40",
    "reservoir.supersteps=12",
    "reservoir.recurrent_scale=20.0",
)
PLUS = ("method=xnq+", "quantifier=auto", "reservoir.dim=48", "intervals.resamples=20")


def embed(out: Path, sources: Sources, client: Client, *overrides: str):
    settings = small_settings(*CHAOTIC, *overrides)
    run = with_graph(out, sources, settings)
    pipeline.embed(run, settings, client)
    return by_node(out / "embeddings", "embedding")


def by_node(folder: Path, column: str) -> np.ndarray:
    table = pq.read_table(folder).sort_by("node_id")
    values = table[column].combine_chunks()
    return values.flatten().to_numpy().reshape(len(table), -1)


def quantify(out: Path, sources: Sources, client: Client) -> dict[str, np.ndarray]:
    settings = small_settings(*PLUS)
    whole_line(out, sources, settings, client)
    table = pq.read_table(out / "prevalence.parquet")
    names = ("prevalence", "lower", "upper")
    return {
        "plus": by_node(out / "embeddings", "embedding"),
        "posteriors": by_node(out / "posteriors", "posterior"),
        **{name: table[name].to_numpy() for name in names},
    }


def main() -> None:
    """Run, and write the arrays."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graph", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dense", action="store_true")
    arguments = parser.parse_args()
    graph, out = arguments.graph, arguments.out
    sources = Sources(str(graph / "nodes.parquet"), str(graph / "edges.parquet"))
    out.mkdir(parents=True, exist_ok=True)
    with thread_workers(1) as client:
        found = {
            f"{matrix} {parts}": embed(
                out / f"{matrix}-{parts}",
                sources,
                client,
                f"reservoir.matrix={matrix}",
                f"partitions={parts}",
            )
            for matrix in ("dense", "sparse")
            for parts in (1, 3)
            if not arguments.dense or (matrix, parts) == ("dense", 3)
        }
        if not arguments.dense:
            found |= quantify(out / "plus", sources, client)
    blas = [
        one.get("architecture", "")
        for one in threadpool_info()
        if one.get("internal_api") == "openblas"
    ]
    np.savez(out / "arrays.npz", blas=np.array(blas), **found)


if __name__ == "__main__":
    main()
