"""Differences of communities, against the definition of their covariance."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from tests.conftest import small_settings
from tests.quantify.default.test_auto import slow_covariance
from tests.quantify.test_stage import answered, draw_memberships, finish, make_run, of
from xnq_dist.core.errors import SettingsError
from xnq_dist.quantify.default.estimator_fit import Learnt
from xnq_dist.quantify.loading import load_groups, load_node_table
from xnq_dist.quantify.stage import quantify
from xnq_dist.steps.contrast import contrast

AUTO = "quantifier=auto"
RANDOM = "labels.drawn=random"
ALONE = "auto.pooled=false"


@pytest.fixture
def client(thread_client: Client) -> Client:
    return thread_client


def partitioned(tmp_path, client, *settings: str):
    """A run on a partition of the nodes into five."""
    made = make_run(tmp_path)
    part = np.arange(300) * 13 % 17 % 5
    path = tmp_path / "part.parquet"
    columns = {"community": part, "node_id": np.arange(300)}
    pq.write_table(pa.table(columns), path)
    chosen = small_settings(AUTO, *settings)
    manifest = finish(made, of(made, memberships=str(path)), chosen, client)
    return made, part, manifest


def test_differences_follow_from_the_covariance(client, tmp_path):
    made, part, manifest = partitioned(tmp_path, client, RANDOM, ALONE)
    nodes, reference = load_node_table(made.run, [0.4, 0.6])
    learnt = Learnt.of(nodes, reference, load_groups(made.run).stacked)
    a, b = np.flatnonzero(part == 0), np.flatnonzero(part == 1)

    def slow(one, two):
        return slow_covariance(nodes, learnt, one, two, 0, 1)

    found = contrast(str(made.run.location), "0", "1").to_pylist()
    rows = answered(made.run, manifest)["prevalence"].to_pylist()
    for k, row in enumerate(found):
        assert row["class_name"] == str(k)
        assert row["difference"] == pytest.approx(rows[k] - rows[2 + k])
        variance = slow(a, a) + slow(b, b) - 2 * slow(a, b)
        assert row["se"] ** 2 == pytest.approx(variance, rel=1e-5)
        assert row["lower"] < row["difference"] < row["upper"]
        assert 0 <= row["pvalue"] <= 1
    back = contrast(str(made.run.location), "1", "0").to_pylist()
    assert [row["difference"] for row in back] == [-row["difference"] for row in found]


def test_differences_hold_both_scenarios_where_labels_may_be_biased(client, tmp_path):
    """The mixture's difference; the ends are those of each scenario alone."""
    found = {}
    for drawn in ("unknown", "random", "by_class"):
        setting = f"labels.drawn={drawn}"
        made, _, manifest = partitioned(tmp_path / drawn, client, setting)
        found[drawn] = contrast(str(made.run.location), "0", "1").to_pylist()[1]
        rows = answered(made.run, manifest)["prevalence"].to_pylist()
        assert found[drawn]["difference"] == pytest.approx(rows[1] - rows[3])
    both, *alone = found.values()
    for end, name in ((min, "lower"), (max, "upper")):
        assert both[name] == pytest.approx(end(each[name] for each in alone))


def test_pooled_communities_share_the_errors_of_their_groups(client, tmp_path):
    made, part, manifest = partitioned(tmp_path, client, RANDOM)
    nodes, reference = load_node_table(made.run, [0.4, 0.6])
    learnt = Learnt.of(nodes, reference, load_groups(made.run).stacked)
    a, b = np.flatnonzero(part == 0), np.flatnonzero(part == 1)
    found = contrast(str(made.run.location), "0", "1").to_pylist()[1]
    se = answered(made.run, manifest)["se"].to_numpy()
    shared = slow_covariance(nodes, learnt, a, b, 0, 1)
    expected = se[1] ** 2 + se[3] ** 2 - 2 * shared
    assert found["se"] ** 2 == pytest.approx(expected, rel=1e-5)


def test_errors_name_the_community_or_the_quantifier(client, tmp_path):
    made, *_ = partitioned(tmp_path, client)
    where = str(made.run.location)
    with pytest.raises(SettingsError, match="there is no community 'x'"):
        contrast(where, "0", "x")
    path, _ = draw_memberships(tmp_path, 2)
    quantify(made.run, of(made, memberships=path), small_settings(), client)
    with pytest.raises(SettingsError, match="run again with quantifier = auto"):
        contrast(where, "set 000", "set 001")
