"""Held-out log-loss does not depend on the unit of a feature column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xnq_dist
from tests.conftest import small_settings, write_graph
from xnq_dist import pipeline
from xnq_dist.graph.tables import Sources


def log_loss(folder: Path, income: np.ndarray, client: object, *extra: str) -> float:
    """Log-loss of the unlabelled nodes of a graph with a heavy-tailed column."""
    made = write_graph(folder / "input").sources
    nodes = pq.read_table(made.nodes)
    x = np.array(nodes["features"].to_pylist())
    columns = {f"x{at}": x[:, at] for at in range(1, 3)}
    columns["income"] = pa.array(income, from_pandas=True)
    table = pa.table({name: nodes[name] for name in ("node_id", "label")} | columns)
    pq.write_table(table, folder / "nodes.parquet")
    sources = Sources(str(folder / "nodes.parquet"), made.edges)
    settings = small_settings("method=xnq", *extra)
    with pipeline.open_run(str(folder / "run"), sources) as run:
        xnq_dist.prepare(run, sources, settings)
        xnq_dist.embed(run, settings, client)
        xnq_dist.fit_readout(run, settings, client)
        xnq_dist.posteriors(run, settings, client)
        found = pq.read_table(run.folder.path("posteriors")).sort_by("node_id")
    posterior = np.array(found["posterior"].to_pylist())
    truth = write_graph(folder / "truth", labelled=1.0).labels
    hidden = np.flatnonzero(nodes["label"].is_null())
    return float(-np.log(posterior[hidden, truth[hidden]]).mean())


@pytest.fixture(scope="module")
def income(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """Log-normal incomes that are higher in one class, with 10 % gaps."""
    rng = np.random.default_rng(0)
    truth = write_graph(tmp_path_factory.mktemp("graph"), labelled=1.0).labels
    values = np.exp(rng.normal(10 + 0.7 * truth, 1))
    return np.where(rng.random(len(values)) < 0.1, np.nan, values)


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [False, True], ids=["complete", "gaps"])
def test_log_loss_is_the_same_in_any_unit(
    tmp_path: Path, income: np.ndarray, thread_client: object, gaps: bool
) -> None:
    values = income if gaps else np.nan_to_num(income, nan=22_000.0)
    due = log_loss(tmp_path / "euros", values, thread_client)
    found = log_loss(tmp_path / "other", -100 * values + 1e5, thread_client)
    assert found == pytest.approx(due, rel=0.01)
    raw = log_loss(tmp_path / "raw", values, thread_client, "features.scale=none")
    assert raw > 1.01 * due
