"""Random small graphs and settings: shares that add up, in any number of partitions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import published_values
from xnq_dist.core.config import load_settings
from xnq_dist.graph.sources import Sources
from xnq_dist.jobs import run_all

CHOICES = {
    "quantifier": ("auto", "auto", "sld", "pacc", "nacc", "cc"),
    "labels.drawn": ("unknown", "random", "by_place"),
    "labelled": ("count", "exclude"),
    "memberships.drawn": ("unknown", "by_class"),
    "readout.folds": (3, 5, 7),
    "readout.calibration": ("bcts", "temperature", "none"),
    "input.directed": ("true", "false"),
}


def write_tables(rng, folder) -> Sources:
    """Nodes with two labels of each class or more, edges, and six communities."""
    nodes, classes = rng.choice((12, 40, 120)), rng.integers(2, 5)
    label = np.arange(nodes) % classes
    hidden = rng.random(nodes) > rng.choice((0.1, 0.6, 0.95, 1))
    hidden[: 2 * classes] = False
    x = rng.normal(size=nodes) + label
    features = (x, pa.array(x, mask=x < 1), np.where(x < 1, "a", "ä"))
    sets = rng.random((6, nodes)) < rng.random((6, 1))
    community, member = sets.nonzero()
    src, dst = rng.integers(nodes, size=(2, 1 + rng.integers(4 * nodes)))
    tables = (
        {
            "node_id": np.arange(nodes),
            "label": pa.array(label, mask=hidden),
            "x": features[rng.integers(3)],
        },
        {"src": src, "dst": dst},
        {"community": community, "node_id": member},
    )
    paths = [str(folder / f"{at}.parquet") for at in range(3)]
    for table, path in zip(tables, paths, strict=True):
        pq.write_table(pa.table(table), path)
    return Sources(*paths)


@pytest.mark.parametrize("seed", range(12))
def test_shares_add_up_in_any_number_of_partitions(seed, tmp_path):
    rng = np.random.default_rng(seed)
    sources = write_tables(rng, tmp_path)
    chosen = [f"{name}={rng.choice(values)}" for name, values in CHOICES.items()]
    chosen += ["cluster.workers=1", "reservoir.dim=32", "disclosure.min_size=1"]
    for partitions in ("1", "12"):
        settings = load_settings(overrides=[*chosen, f"partitions={partitions}"])
        run_all(sources, str(tmp_path / partitions), settings)
    found = published_values(tmp_path / "1")
    assert found.equals(published_values(tmp_path / "12"))
    estimated = found.filter(pc.is_valid(found["prevalence"]))
    shares = estimated.group_by("community").aggregate([("prevalence", "sum")])
    assert np.allclose(shares["prevalence_sum"], 1)
    ends = found.select(["lower", "prevalence", "upper"])
    lower, share, upper = (column.to_numpy() for column in ends)
    assert not ((lower < 0) | (lower > share) | (share > upper) | (upper > 1)).any()
