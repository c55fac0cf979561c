"""The table of anomalies has every community, with correct ranks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.report.fake_run import compared, prevalence_table
from xnq_dist.core.schemas import conform
from xnq_dist.core.settings import Settings
from xnq_dist.report.compared import anomaly_rows, ranks


def view_with_gaps(count=30, classes=("a", "b", "c")):
    """Some communities without a prevalence, some without an interval."""
    table = prevalence_table(np.arange(count), classes, intervals=True)
    community = table["community"].to_numpy()
    for name, left_out in (("prevalence", 3), ("lower", 5), ("upper", 5)):
        gone = (community % left_out == 1) | (community % 3 == 1)
        values = pa.array(table[name].to_numpy(zero_copy_only=False), mask=gone)
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return compared(table, Settings())


def test_communities_without_an_interval_keep_their_rows():
    view, found = view_with_gaps()
    assert found is not None
    rows = anomaly_rows(view, found, Settings())
    assert rows.num_rows == 30 * 3
    assert len(pc.unique(rows["community"])) == 30
    for row in rows.to_pylist():
        nothing, no_interval = row["community"] % 3 == 1, row["community"] % 5 == 1
        assert (row["prevalence"] is None) == nothing
        assert (row["rank_prevalence"] is None) == nothing
        for name in ("effect", "pvalue", "qvalue", "anomalous", "rank_effect"):
            assert (row[name] is None) == (nothing or no_interval), name


def test_ranks_are_those_of_the_values():
    view, found = view_with_gaps()
    assert found is not None
    rows = anomaly_rows(view, found, Settings()).to_pylist()
    for name in ("a", "b", "c"):
        own = [row for row in rows if row["class"] == name]
        for rank, size in (
            ("rank_effect", lambda row: abs(row["effect"])),
            ("rank_prevalence", lambda row: row["prevalence"]),
        ):
            ranked = sorted((r for r in own if r[rank]), key=lambda r: r[rank])
            assert [r[rank] for r in ranked] == list(range(1, len(ranked) + 1))
            sizes = [size(r) for r in ranked]
            assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("labels", [(0, 1), (False, True), ("no", "yes")])
def test_class_keeps_the_type_of_the_labels(labels):
    view, found = compared(prevalence_table(list("abc"), labels, True), Settings())
    assert found is not None
    rows = conform(anomaly_rows(view, found, Settings()), "anomalies", "here")
    assert rows["class"].type == pa.array(labels).type
    assert set(rows["class"].to_pylist()) == set(labels)


def test_equal_values_are_ranked_by_size_and_place():
    values = np.array([[0.5], [np.nan], [0.5], [0.9], [0.5]])
    sizes = np.array([10, 99, 30, 1, 30])
    assert ranks(values, sizes)[:, 0].tolist() == [4, 0, 2, 1, 3]
