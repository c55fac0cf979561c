"""A run directory of 0.1.0, which this version refuses.

`run-0.1.0.tar.xz` has tables and a run directory made by the last commit of 0.1.0.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import RunDirectoryError
from xnq_dist.graph.sources import Sources
from xnq_dist.jobs import run_all

SETTINGS = load_settings(
    overrides=[
        "cluster.workers=1",
        "reservoir.dim=8",
        "reservoir.supersteps=4",
        "partitions=2",
    ]
)


def test_a_run_directory_of_0_1_is_refused_or_replaced(tmp_path: Path):
    with tarfile.open(Path(__file__).with_name("run-0.1.0.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    names = ("nodes", "edges", "memberships")
    sources = Sources(*(f"{tmp_path}/graph/{name}.parquet" for name in names))
    before = pq.read_table(tmp_path / "run" / "prevalence.parquet")
    with pytest.raises(
        RunDirectoryError, match=r"another version of xnq-dist: .*--overwrite"
    ):
        run_all(sources, f"{tmp_path}/run", SETTINGS)
    run_all(sources, f"{tmp_path}/run", SETTINGS, overwrite=True)
    assert len(pq.read_table(tmp_path / "run" / "prevalence.parquet")) == len(before)
