"""Differences of communities, against the definition of their covariance."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from tests.conftest import small_settings
from tests.quantify.default.test_auto import slow_covariance
from tests.quantify.test_stage import answered, finish, make_run, of
from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.errors import SettingsError
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.loading import load_groups, load_node_table
from xnq_dist.steps.contrast import contrast

AUTO = "quantifier=auto"
ALONE = "auto.pooled=false"


@pytest.fixture(scope="module")
def made(thread_client: Client, tmp_path_factory: pytest.TempPathFactory):
    """Runs on a partition of the nodes into five, by how the labels were drawn."""
    known = {}

    def run(drawn: str, *settings: str):
        if (drawn, *settings) not in known:
            folder = tmp_path_factory.mktemp("run")
            known[drawn, *settings] = partitioned(
                folder, thread_client, f"labels.drawn={drawn}", *settings
            )
        return known[drawn, *settings]

    return run


def partitioned(folder, client, *settings: str):
    made = make_run(folder)
    part = np.arange(300) * 13 % 17 % 5
    path = folder / "part.parquet"
    columns = {"community": part, "node_id": np.arange(300)}
    pq.write_table(pa.table(columns), path)
    chosen = small_settings(AUTO, *settings)
    manifest = finish(made, of(made, memberships=str(path)), chosen, client)
    return made, part, manifest


def covariance(run, part):
    """The covariance of two parts by its definition."""
    nodes = load_node_table(run)
    learnt = Learnt.of(nodes, load_groups(run).stacked)

    def slow(one: int, other: int):
        places = (np.flatnonzero(part == each) for each in (one, other))
        return slow_covariance(nodes, learnt, *places, 0, 1)

    return slow


def test_differences_follow_from_the_covariance(made):
    run, part, manifest = made("random", ALONE)
    slow = covariance(run.run, part)
    found = contrast(str(run.run.location), "0", "1").to_pylist()
    rows = answered(run.run, manifest)["prevalence"].to_pylist()
    for k, row in enumerate(found):
        assert row["class_name"] == str(k)
        assert row["difference"] == pytest.approx(rows[k] - rows[2 + k])
        variance = slow(0, 0) + slow(1, 1) - 2 * slow(0, 1)
        assert row["se"] ** 2 == pytest.approx(variance, rel=1e-5)
        assert row["lower"] < row["difference"] < row["upper"]
        assert 0 <= row["pvalue"] <= 1
    back = contrast(str(run.run.location), "1", "0").to_pylist()
    assert [row["difference"] for row in back] == [-row["difference"] for row in found]
    assert contrast(str(run.run.location), 0, 1).to_pylist() == found


def test_differences_hold_both_scenarios_where_labels_may_be_biased(made):
    """The mixture's difference; the ends are those of each scenario alone."""
    found = []
    for drawn in ("unknown", "random", "by_class"):
        run, _, manifest = made(drawn)
        found.append(contrast(str(run.run.location), "0", "1").to_pylist()[1])
        rows = answered(run.run, manifest)["prevalence"].to_pylist()
        assert found[-1]["difference"] == pytest.approx(rows[1] - rows[3])
    both, *alone = found
    for end, name in ((min, "lower"), (max, "upper")):
        assert both[name] == pytest.approx(end(each[name] for each in alone))


def test_pooled_communities_share_the_errors_of_their_groups(made):
    run, part, manifest = made("random")
    found = contrast(str(run.run.location), "0", "1").to_pylist()[1]
    se = answered(run.run, manifest)["se"].to_numpy()
    shared = covariance(run.run, part)(0, 1)
    expected = se[1] ** 2 + se[3] ** 2 - 2 * shared
    assert found["se"] ** 2 == pytest.approx(expected, rel=1e-5)


def test_errors_name_the_community_or_the_quantifier(made, tmp_path):
    run, *_ = made("unknown")
    with pytest.raises(SettingsError, match="there is no community 'x'"):
        contrast(str(run.run.location), "0", "x")
    other = write_fake_run(tmp_path / "run", [prevalence_table(["a", "b"])])
    record = {"settings": small_settings().model_dump(mode="json")}
    other.write_record("_run.json", record)
    with pytest.raises(SettingsError, match="run again with quantifier = auto"):
        contrast(other.uri, "a", "b")
