"""Scaled features do not depend on the unit, offset and sign of a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.graph.graphs import edge_table, features_of, node_table, run
from xnq_dist.core.config import load_settings
from xnq_dist.graph import encoding, layout, scaling
from xnq_dist.graph.encoding import learn_encoding
from xnq_dist.graph.features import FeatureColumns
from xnq_dist.graph.labels import read_nodes
from xnq_dist.graph.scaling import learn_scaling
from xnq_dist.graph.tables import open_table

Array = NDArray[np.float64]

CHANGES = [(1e6, 0.0), (1.0, 1e4), (-1.0, 0.0), (-3e-4, 17.0), (1e-9, -1e-3)]


def learn(x, keeps=False, pieces=1, seed=0):
    """The scaling of a matrix whose rows come shuffled, in pieces."""
    order = np.random.default_rng(seed).permutation(len(x))
    batches = ((part, [x[part]]) for part in np.array_split(order, pieces))
    _, sample = learn_encoding(batches, {"x": "list"}, len(x))
    return learn_scaling(sample, keeps)


def columns(n=400, seed=0):
    """A normal column, an income, a year, rare flags, counts, a constant."""
    rng = np.random.default_rng(seed)
    return np.stack(
        [
            rng.normal(size=n),
            np.exp(rng.normal(10.5, 1.0, n)),
            np.round(rng.normal(1985, 15, n)),
            (rng.random(n) < 0.02).astype(float),
            (rng.random(n) < 0.9).astype(float),
            rng.poisson(0.1, n).astype(float),
            np.full(n, 7.0),
        ],
        axis=1,
    )


@pytest.mark.parametrize(("factor", "offset"), CHANGES)
@pytest.mark.parametrize("column", range(7))
def test_an_affine_change_of_a_column_keeps_the_bits(column, factor, offset):
    x = columns()
    changed = x.copy()
    changed[:, column] = factor * x[:, column] + offset
    due = learn(x).apply(x)
    assert np.array_equal(learn(changed).apply(changed), due)


def test_an_affine_change_beyond_the_range_changes_one_column_of_a_list_alone():
    x = np.random.default_rng(1).normal(0, [0.2, 0.5, 0.3, 0.4], (300, 4))
    assert np.array_equal(learn(x, keeps=True).apply(x), x.astype(np.float32))
    found = []
    for factor, offset in ((1e6, 1e4), (-1e3, 0.0), (1.0, 1e4), (1e-6, 0.0)):
        changed = x.copy()
        changed[:, 1] = factor * x[:, 1] + offset
        found.append(learn(changed, keeps=True).apply(changed))
        assert np.array_equal(np.delete(found[-1], 1, 1), np.delete(found[0], 1, 1))
        assert np.array_equal(found[-1][:, 0], x[:, 0].astype(np.float32))
        # The same scale as its neighbours.
        assert 0.1 < found[-1][:, 1].std() < 0.5
    assert all(np.array_equal(each, found[0]) for each in found)


@pytest.mark.parametrize("changed", [3.0, -1.0, 1e6])
def test_flags_of_a_list_come_back_as_0_and_1(changed):
    x = (np.random.default_rng(2).random((200, 5)) < 0.2).astype(float)
    other = x * [1, changed, 1, 1, 1]
    assert np.array_equal(learn(other, keeps=True).apply(other), x)


@settings(max_examples=30, deadline=None)
@given(pieces=st.integers(1, 40), seed=st.integers(0, 99), few=st.booleans())
def test_scaling_is_independent_of_order_and_batches_of_rows(pieces, seed, few):
    x = columns(60 if few else 400)
    one, other = learn(x), learn(x, pieces=pieces, seed=seed)
    for name in ("kinds", "center", "spread", "gain"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_an_outlier_is_bounded_and_leaves_the_others_alone():
    x = np.random.default_rng(3).normal(size=(1000, 1))
    before = learn(x).apply(x)
    x[7] = 1e12
    after = learn(x).apply(x)
    assert after[7] == scaling.LIMIT
    assert np.abs(np.delete(after - before, 7)).max() < 0.02
    assert np.argmax(after) == 7


def test_a_rare_flag_keeps_0_and_1():
    x = np.zeros((500, 2))
    x[:10, 0] = 1
    x[3, 1] = 40
    found = learn(x).apply(x)
    assert np.array_equal(found, x != 0)


def test_noise_around_a_common_value_stays_small():
    rng = np.random.default_rng(4)
    x = rng.normal(0, 1e-6, (2000, 1))
    x[:60] += 1
    found = learn(x).apply(x)[:, 0]
    assert np.abs(found[60:]).max() < 1e-3
    assert found[:60].min() > 1


def test_many_columns_share_the_energy_of_a_few():
    x = np.random.default_rng(5).normal(size=(500, 200))
    norm = np.mean(np.sum(learn(x).apply(x) ** 2, axis=1))
    assert norm == pytest.approx(scaling.MAX_ENERGY, rel=0.01)
    flags = (np.random.default_rng(6).random((500, 12)) < 0.3).astype(float)
    assert np.array_equal(learn(flags).apply(flags), flags)


def test_values_of_a_large_table_are_measured_on_a_sample(
    monkeypatch,
):
    monkeypatch.setattr(encoding, "SAMPLE_ROWS", (256, 512))
    rng = np.random.default_rng(7)
    x = np.stack([rng.normal(5, 2, 20_000), np.arange(20_000) == 11_111], 1)
    found = learn(x)
    assert abs(found.center[0] - 5) < 0.4
    assert abs(abs(found.spread[0]) - 2) < 0.4
    # A single flag has an effect whether or not the sample contains it.
    assert found.apply(x)[:, 1].sum() == 1


def test_values_that_the_sample_lacks_are_bounded():
    rng = np.random.default_rng(9)
    sample = np.stack([rng.normal(size=300), rng.random(300) < 0.2, np.ones(300)], 1)
    found = learn_scaling(sample, keeps=True).apply(np.full((1, 3), 1e30))
    assert found.tolist() == [[scaling.KEPT_SIZE] * 3]
    found = learn_scaling(sample, keeps=False).apply(np.full((1, 3), 1e30))
    assert np.abs(found).tolist() == [[scaling.LIMIT, 1, 1]]


NAMES = ["age", "income", "flag"]


def named(n=30):
    rng = np.random.default_rng(8)
    table = node_table(n)
    for name, values in (
        ("age", pa.array(rng.integers(18, 80, n))),
        ("income", pa.array(np.exp(rng.normal(10, 1, n)))),
        ("flag", pa.array(rng.random(n) < 0.2)),
    ):
        table = table.append_column(name, values)
    return table


ON = "columns.features=[age, income, flag]"


def load_scaling(stage, manifest):
    files = manifest.named(layout.SCALING)
    return stage.read_table(files[0], "feature_scaling") if files else None


def test_named_columns_are_standardised_and_the_run_says_how(tmp_path):
    nodes = named()
    stage, manifest = run(tmp_path, nodes, edge_table(), ON)
    found = features_of(stage, manifest)
    assert np.abs(found).max() <= scaling.LIMIT
    table = load_scaling(stage, manifest)
    assert table is not None
    rows = {row["feature"]: row for row in table.to_pylist()}
    assert list(rows) == NAMES
    kinds = [row["kind"] for row in rows.values()]
    assert kinds == ["robust", "robust", "two values"]
    age = nodes["age"].to_numpy()
    assert rows["age"]["center"] == np.median(age)
    z = np.arcsinh((age - rows["age"]["center"]) / rows["age"]["spread"])
    assert np.allclose(found[:, 0], rows["age"]["gain"] * z, atol=1e-4)


def test_no_scale_keeps_the_values_of_the_table(tmp_path):
    nodes = named()
    stage, manifest = run(tmp_path, nodes, edge_table(), ON, "features.scale=none")
    found = features_of(stage, manifest)
    due = [nodes[name].to_numpy().astype(np.float32) for name in NAMES]
    assert np.array_equal(found, np.stack(due, 1))
    table = load_scaling(stage, manifest)
    assert table["feature"].to_pylist() == NAMES
    assert set(table["kind"].to_pylist()) == {"kept"}


def test_a_change_below_float32_makes_the_stage_anew(tmp_path):
    nodes = named()
    at = nodes.schema.get_field_index("age")
    # Seconds since 1970 have a precision of two minutes in float32.
    seconds = 1_700_000_000 + nodes["age"].to_numpy()
    later = seconds + 40 * (np.arange(len(seconds)) == 3)
    found, made = [], set()
    for ages in (nodes["age"].to_numpy(), seconds, later):
        changed = nodes.set_column(at, "age", pa.array(ages))
        stage, manifest = run(tmp_path, changed, edge_table(), ON)
        found.append(features_of(stage, manifest))
        made.add(manifest.fingerprint)
    assert np.array_equal(found[1], found[0])
    assert not np.array_equal(found[2], found[0])
    assert len(made) == 3


def test_constant_columns_alone_are_warned_of(tmp_path, caplog):
    nodes = node_table(6).append_column("one", pa.array([3] * 6))
    assert not features_of(
        *run(tmp_path, nodes, edge_table(), "columns.features=[one]")
    ).any()
    assert "every feature column is constant" in caplog.text


@pytest.mark.data
@pytest.mark.parametrize("name", ["cora", "tolokers"])
def test_lists_of_one_scale_keep_their_bits(data_folder, name):
    table = open_table(data_folder / name / "nodes.parquet", "node table")
    columns = FeatureColumns(table, "features")
    rows = read_nodes(table, load_settings())[:2]
    _, index = rows
    columns.learn(index, "auto")
    assert (columns.scaling.kinds == scaling.KEPT).all()
    scaled = [matrix for _, matrix in columns.batches(index)]
    columns.learn(index, "none")
    unchanged = [matrix for _, matrix in columns.batches(index)]
    assert np.array_equal(np.concatenate(scaled), np.concatenate(unchanged))
