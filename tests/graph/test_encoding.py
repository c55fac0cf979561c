"""Feature columns of any type become numbers, whatever their unit."""

from __future__ import annotations

import datetime as dt
import io

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.graph.graphs import edge_table, features_of, node_table, run
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError
from xnq_dist.graph import layout
from xnq_dist.graph.feature_types import chosen_columns
from xnq_dist.graph.head import count_features
from xnq_dist.graph.tables import open_table

N = 60
UNSCALED = "features.scale=none"


def people(n=N, **changed):
    """Nodes with columns of every type, all with gaps."""
    rng = np.random.default_rng(5)
    gaps = rng.random((4, n)) < 0.2
    days = [
        dt.date(1990, 1, 1) + dt.timedelta(int(d)) for d in rng.integers(0, 9000, n)
    ]
    towns = np.array(["Bonn", "Ulm", "Jena"])[rng.integers(0, 3, n)]
    columns = {
        "income": pa.array(np.exp(rng.normal(10, 1, n)), mask=gaps[0]),
        "member": pa.array(rng.random(n) < 0.3, mask=gaps[1]),
        "born": pa.array(days, pa.date32(), mask=gaps[2]),
        "town": pa.array(towns, mask=gaps[3]),
    }
    return node_table(n, **columns | changed).drop_columns("features")


def read(folder, nodes, *extra, partitions=2):
    """Each feature by name in order of the ids, and the manifest."""
    stage, manifest = run(folder, nodes, edge_table(), *extra, partitions=partitions)
    (record,) = manifest.named(layout.SCALING + "-")
    names = stage.read_table(record, "feature_scaling")["feature"].to_pylist()
    found = features_of(stage, manifest).T
    return dict(zip(names, found, strict=True)), manifest


def test_columns_of_every_type_become_numbers(tmp_path):
    nodes = people()
    found, _ = read(tmp_path, nodes, UNSCALED)
    towns = nodes["town"].to_pylist()
    ranked = sorted({t for t in towns if t}, key=lambda t: (-towns.count(t), t))
    assert list(found) == [
        *("born", "born is missing", "income", "income is missing"),
        *("member", "member is missing", *(f"town = {town}" for town in ranked)),
        "town is missing",
    ]
    for name in ("income", "member", "born", "town"):
        absent = nodes[name].is_null().to_numpy()
        assert np.array_equal(found[f"{name} is missing"], absent)
    fill = np.median(nodes["income"].drop_null().to_numpy())
    due = nodes["income"].fill_null(fill).to_numpy().astype(np.float32)
    assert np.array_equal(found["income"], due)
    days = nodes["born"].cast(pa.int32()).to_pylist()
    known = [at for at, day in enumerate(days) if day is not None]
    assert found["born"][known].tolist() == [days[at] for at in known]
    for town in ranked:
        assert found[f"town = {town}"].tolist() == [each == town for each in towns]


def test_an_index_of_pandas_is_left_out_of_the_features(tmp_path):
    numbers = {name: np.arange(N) for name in ("Unnamed: 0", "__index_level_0__")}
    index = pa.array(np.arange(N) / 2)  # of prices, say
    found, _ = read(tmp_path, people(**numbers, index=index), UNSCALED)
    assert "index" in found
    assert set(found) & set(numbers) == set()


def test_a_time_of_day_is_the_fraction_of_a_day(tmp_path):
    noon = dt.datetime(1970, 1, 3, 12, tzinfo=dt.UTC)
    kinds = pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.date64()
    seen = {str(at): pa.array([noon] * N, kind) for at, kind in enumerate(kinds)}
    found, *_ = read(
        tmp_path, people(**seen), UNSCALED, "columns.features=['0','1','2']"
    )
    assert [set(found[name]) for name in seen] == [{2.5}, {2.5}, {2.0}]


def test_a_change_of_unit_of_a_column_with_gaps_keeps_the_bits(tmp_path):
    nodes = people()
    due, *_ = read(tmp_path / "euros", nodes)
    income = nodes["income"].to_numpy()
    for factor, offset in ((100, 0), (-0.001, 1e4)):
        values = pa.array(income * factor + offset, from_pandas=True)
        other, *_ = read(tmp_path / f"{factor}", people(income=values))
        for name, column in due.items():
            assert np.array_equal(other[name], column), name


def test_the_most_frequent_levels_have_columns(tmp_path):
    streets = [f"street {at % 33}" for at in range(N * 2)]
    ranked = sorted({*streets}, key=lambda street: (-streets.count(street), street))
    found, _ = read(tmp_path, people(2 * N, town=pa.array(streets)), UNSCALED)
    named = {name: column for name, column in found.items() if "town" in name}
    assert list(named) == [f"town = {street}" for street in ranked[:32]]
    for street, column in zip(ranked, named.values(), strict=False):
        assert np.array_equal(column, np.array(streets) == street)


def test_text_with_a_value_for_each_node_is_left_out(tmp_path, caplog):
    names = pa.array([f"name {at}" for at in range(N)])
    found, _ = read(tmp_path, people(town=names))
    assert "town" not in " ".join(found)
    assert "'town' has a different value for almost every node" in caplog.text


def in_csv(table):
    sink = io.BytesIO()
    pacsv.write_csv(table, sink)
    return sink.getvalue().decode()


FORMS = {
    "dictionary": lambda t: people(town=t["town"].dictionary_encode()),
    "csv": in_csv,
    "files": lambda t: [t.take(list(range(at, N, 3))) for at in range(3)],
    "partitions": lambda t: t,
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_the_table_gives_the_same_bits(tmp_path, form):
    nodes = people()
    due, _ = read(tmp_path / "a", nodes)
    count = 3 if form == "partitions" else 1
    found = read(tmp_path / "b", FORMS[form](nodes), partitions=count)
    assert list(found[0]) == list(due)
    for name, column in due.items():
        assert np.array_equal(found[0][name], column), name


def test_gaps_in_a_list_are_filled_and_marked_once(tmp_path):
    for width in (2, -1):
        kind = pa.list_(pa.float64(), width)
        lists = pa.array([[1, 5], None, [2, float("nan")], [4, 9]], kind)
        found, *_ = read(tmp_path / str(width), node_table(4, features=lists), UNSCALED)
        assert {name: values.tolist() for name, values in found.items()} == {
            "features[0]": [1, 2, 2, 4],
            "features[1]": [5, 7, 7, 9],
            "features is missing": [0, 1, 1, 0],
        }


def test_the_first_rows_may_lack_a_list(tmp_path):
    # More rows than a batch.
    lists = pa.array([None] * 5000 + [[1.0, 2.0]], pa.list_(pa.float64()))
    found, *_ = read(tmp_path, node_table(5001, features=lists), UNSCALED)
    assert found["features is missing"].sum() == 5000


def test_auto_takes_all_columns_without_another_use(tmp_path):
    nodes = people(role=pa.nulls(N, pa.string()), group=["a"] * N, tags=[["x"]] * N)
    found, _ = read(tmp_path, nodes, "communities=column:group")
    sources = dict.fromkeys(name.split()[0] for name in found)
    assert list(sources) == ["born", "income", "member", "town"]


def test_the_plan_counts_the_features_of_text_and_gaps(tmp_path):
    pq.write_table(people(), tmp_path / "nodes.parquet")
    table = open_table(tmp_path / "nodes.parquet", "node table")
    columns = chosen_columns(table, load_settings())
    assert count_features(table, columns) == 2 + 2 + 2 + 33


@pytest.mark.parametrize(
    ("column", "right", "words"),
    [
        (
            pa.array([1.0, float("inf"), *[2.0] * (N - 2)]),
            pa.array([1.0, None, *[2.0] * (N - 2)]),
            r"'odd' is infinite .* in row 2 of .*: correct the value",
        ),
        (
            pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())),
            pa.array(["a", "b"] * (N // 2)),
            "'odd' of .* is map<.*>, which cannot be used: leave it out of",
        ),
    ],
    ids=["infinite", "map"],
)
def test_a_column_that_cannot_be_a_feature_is_refused(tmp_path, column, right, words):
    named = "columns.features=[income, odd]"
    with pytest.raises(InputError, match=words):
        read(tmp_path, people(odd=column), named)
    assert read(tmp_path, people(odd=right), named)


def test_a_column_of_text_in_one_file_alone_is_refused(tmp_path):
    nodes = people().select(["node_id", "label", "income"])
    other = nodes.slice(30).set_column(2, "income", pa.array(["high"] * 30))
    with pytest.raises(InputError, match="is text in one file and not in another"):
        run(tmp_path, [nodes.slice(0, 30), other], edge_table())


@pytest.mark.parametrize("column", ["income", "features"])
def test_a_feature_in_some_files_alone_is_refused(tmp_path, column):
    nodes = people().select(["node_id", "label", "town"])
    lists = pa.array([[1.0]] * 30) if column == "features" else pa.array([1.0] * 30)
    files = [nodes.slice(0, 30), nodes.slice(30).append_column(column, lists)]
    for place, given in (("a", files), ("b", files[::-1])):
        with pytest.raises(InputError, match=f"{column!r} is in .* but not in"):
            run(tmp_path / place, given, edge_table())


def test_a_feature_that_is_a_list_in_one_file_alone_is_refused(tmp_path):
    nodes = people().select(["node_id", "label", "town"])
    files = [
        nodes.slice(0, 30).append_column("income", pa.array([1.0] * 30)),
        nodes.slice(30).append_column("income", pa.array([[1.0]] * 30)),
    ]
    for place, given in (("a", files), ("b", files[::-1])):
        with pytest.raises(InputError, match=r"'income' of .* which cannot be used"):
            run(tmp_path / place, given, edge_table())


def test_what_is_learnt_from_a_large_table_is_independent_of_its_order():
    from xnq_dist.graph.encoding import learn_encoding

    n = 200_000
    rng = np.random.default_rng(1)
    numbers = np.where(rng.random(n) < 0.3, np.nan, rng.normal(5, 2, n))
    zips = pa.array([f"{code:05d}" for code in rng.integers(0, 40_000, n)])
    unique = pa.array([f"id {at}" for at in range(n)])
    named = {"x": "number", "zip": "text", "name": "text"}
    found = []
    for order in (np.arange(n), rng.permutation(n)):
        batches = [
            (
                at,
                [numbers[at][:, None], *(pa.array(t).take(at) for t in (zips, unique))],
            )
            for at in np.array_split(order, 7)
        ]
        found.append(learn_encoding(batches, named, n))
    (sources, sample), (others, again) = found
    x = sources[0]
    assert abs(x.fills[0] - 5) < 0.1
    assert [len(each.names) for each in sources] == [2, 32, 0]
    assert [each.names for each in sources] == [each.names for each in others]
    assert x.fills == others[0].fills
    assert np.array_equal(sample, again)
