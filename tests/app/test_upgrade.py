"""A run directory of 0.1.0, read by this version.

`run-0.1.0.tar.xz` has tables and a run directory made by the last commit of 0.1.0:
``generate --nodes 300 --communities 6 --features 4``, then `run` with these settings
and ``quality.suppressed_below=5``.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import published_values
from xnq_dist.app.running import run_pipeline
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Published, RunDirectory
from xnq_dist.graph.tables import Sources


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Folder with the tables (`graph`) and the run directory (`run`) of 0.1.0."""
    with tarfile.open(Path(__file__).with_name("run-0.1.0.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def settings(*more: str) -> Settings:
    overrides = [
        "cluster.workers=1",
        "reservoir.dim=8",
        "reservoir.supersteps=4",
        "intervals.resamples=20",
        "partitions=2",
        *more,
    ]
    return load_settings(overrides=overrides)


def sources(folder: Path) -> Sources:
    tables = (f"{folder}/graph/{n}.parquet" for n in ("nodes", "edges", "memberships"))
    return Sources(*tables)


def test_a_run_directory_of_0_1_is_continued(old: Path):
    before = pq.read_table(old / "run" / "prevalence.parquet")
    run_pipeline(sources(old), f"{old}/run", settings("disclosure.min_size=5"))
    assert len(Published(RunDirectory(old / "run")).versions()) == 2
    after = pq.read_table(old / "run" / "prevalence.parquet")
    assert len(after) == len(before)
    # Stages in formats of 0.1 were made again: results are those of a new run.
    run_pipeline(sources(old), f"{old}/new", settings("disclosure.min_size=5"))
    assert published_values(old / "run").equals(published_values(old / "new"))
    changes = pq.read_table(old / "run" / "changes.parquet")
    assert len(changes) == len(before)


def test_a_setting_of_0_1_that_has_another_name_is_named():
    with pytest.raises(SettingsError, match=r"set disclosure\.min_size"):
        settings("quality.suppressed_below=5")
