from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.graphs import (
    edge_table,
    edges,
    features_of,
    labels_of,
    node_table,
    run,
)
from tests.graph.tasks import TasksHere, by_tasks, small_tasks
from xnq_dist.core import schemas
from xnq_dist.core.errors import (
    InfrastructureError,
    InputError,
    SettingsError,
    StageError,
)
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import layout, partition_files
from xnq_dist.graph import prepare as module
from xnq_dist.graph.prepare import partitions_table

PARTITIONERS = ["metis", "stream", "contiguous"]


def ids_for(n, kind):
    """Ids in canonical order that are not 0..n-1."""
    if kind == "string":
        return pa.array(sorted(f"n{v * 37 % 101}" for v in range(n)))
    if kind == "dense":
        return pa.array([v * 3 - 5 for v in range(n)], pa.int64())
    return pa.array([(v - 3) * 10**15 for v in range(n)], pa.int64())


@settings(max_examples=40, deadline=None)
@given(
    partitioner=st.sampled_from(PARTITIONERS),
    graph=edges(),
    kind=st.sampled_from(["string", "dense", "sparse"]),
    order=st.randoms(use_true_random=False),
    memory=st.sampled_from([1 << 10, 1 << 30]),
    slots=st.integers(0, 3),
    files=st.integers(1, 3),
    data=st.data(),
)
def test_the_adjacency_put_back_together_is_the_table(
    tmp_path_factory, partitioner, graph, kind, order, memory, slots, files, data
):
    """In one process, and by tasks in any order."""
    partitions = data.draw(st.integers(1, min(7, graph.n)))
    ids = ids_for(graph.n, kind)

    def shuffled(count):
        return order.sample(range(count), count)

    nodes = node_table(graph.n, node_id=ids).take(shuffled(graph.n))
    source, target, weight = (list(column) for column in zip(*graph.rows, strict=True))
    links = {"src": ids.take(pa.array(source)), "dst": ids.take(pa.array(target))}
    if graph.weighted:
        links["weight"] = pa.array(weight, pa.float64())
    links = pa.table(links)
    size = -(-len(links) // files)
    folder, options = tmp_path_factory.mktemp("run"), {}
    if slots:
        tasks = TasksHere(folder / "shared", slots, memory, shuffled)
        tasks.folder.mkdir()
        options["workers"] = by_tasks(tasks)
    with pytest.MonkeyPatch.context() as patch:
        small_tasks(patch)
        _, manifest = run(
            folder,
            nodes,
            [links.slice(at, size) for at in range(0, len(links), size)],
            f"partitioner={partitioner}",
            f"input.directed={graph.directed}",
            f"input.duplicates={graph.duplicates}",
            f"input.memory={memory}",
            "features.scale=none",
            partitions=partitions,
            **options,
        )
    due = graph.adjacency()
    found = layout.read_adjacency(manifest)
    assert (found.indptr == due.indptr).all()
    assert (found.indices == due.indices).all()
    assert (found.data == due.data).all()
    facts = manifest.facts
    assert facts["n_edges"] == due.nnz == sum(facts["edges"])
    assert facts["partitioner"] == (partitioner if partitions > 1 else "contiguous")
    # Nodes are in the partition that its rows list.
    assert layout.load_ids(manifest).values.to_pylist() == ids.to_pylist()
    index = layout.node_index(manifest)
    assert np.sort(np.concatenate(index)).tolist() == list(range(graph.n))
    labels = layout.load_labels(labels_of(folder)[1]).codes
    assert labels.tolist() == [v % 2 for v in range(graph.n)]
    sizes = layout.halo_sizes(manifest)
    for number, rows in enumerate(index):
        part = layout.load_nodes(manifest, number)
        assert part["node_id"].to_pylist() == ids.take(pa.array(rows)).to_pylist()
        assert part["features"].to_pylist() == [[float(v), 0.5] for v in rows]
        assert len(rows) == facts["owned"][number] == np.diff(facts["offsets"])[number]
        arrays = layout.load_partition(manifest, number)
        assert arrays.n_halo == facts["halo"][number]
        assert len(np.unique(arrays.send_rows)) == facts["boundary"][number]
        assert (sizes[number] == np.diff(arrays.send_offsets)).all()
        assert (sizes[:, number] == np.diff(arrays.halo_offsets)).all()


def digests(manifest):
    return sorted((f.name.rsplit("-", 1)[0], f.checksum) for f in manifest.files)


def larger(seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 60, (400, 2)).tolist()
    roles = [["train", "calibration", None][v % 3] for v in range(60)]
    labels = pa.array([None if v % 7 == 0 else v % 2 for v in range(60)])
    nodes = node_table(60, role=pa.array(roles), label=labels)
    return nodes, edge_table([tuple(row) for row in rows], weight=rng.random(400))


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_files_are_independent_of_the_order_of_rows(tmp_path, partitioner):
    nodes, links = larger()
    extra = f"partitioner={partitioner}", "input.memory=2 KiB", "input.duplicates=sum"
    _, first = run(tmp_path / "a", nodes, links, *extra, partitions=3)
    rng = np.random.default_rng(1)
    nodes, links = (t.take(rng.permutation(len(t))) for t in (nodes, links))
    _, second = run(tmp_path / "b", nodes, links, *extra, partitions=3)
    assert digests(first) == digests(second)
    assert first.facts == second.facts


def test_weights_of_duplicates_add_up_to_the_same_bits_in_any_order(tmp_path):
    """The largest is halfway between two float32, and the small ones decide."""
    large, small, found = 2.0**33 + 2.0**9, 2.0**-20, []
    for at, weights in enumerate(([large, small, small], [small, small, large])):
        links = edge_table([(0, 1)] * 3, weight=weights)
        where = tmp_path / str(at), node_table(4), links
        adjacency = layout.read_adjacency(run(*where, "input.duplicates=sum")[1])
        found.append(adjacency.toarray()[1, 0])
    assert found == [2.0**33 + 2.0**10] * 2


def test_facts_say_what_became_of_every_row(tmp_path):
    rows = [(0, 1), (0, 1), (1, 0), (2, 2), (2, 3), (3, 99), (98, 1)]
    _, manifest = run(
        tmp_path,
        node_table(5),
        edge_table(rows),
        "input.unknown_nodes=drop",
    )
    assert manifest.facts["counts"] == {
        "edges_read": 7,
        "reversed_added": 1,
        "duplicates_dropped": 1,
        "self_loops": 1,
        "unknown_dropped": 2,
    }
    assert manifest.facts["n_edges"] == 5
    assert manifest.facts["rho"] == pytest.approx((1 + 5**0.5) / 2, rel=1e-5)
    known = labels_of(tmp_path)[1].facts
    assert known["classes"] == [0, 1]
    assert known["class_counts"] == [3, 2]
    assert not manifest.facts["weighted"]


def test_summed_duplicates_without_weights_count(tmp_path):
    _, manifest = run(
        tmp_path / "a",
        node_table(4),
        edge_table([(0, 1), (0, 1), (2, 3)]),
        "input.duplicates=sum",
    )
    assert manifest.facts["weighted"]
    dense = layout.read_adjacency(manifest).toarray()
    assert (dense[1, 0], dense[0, 1], dense[3, 2]) == (2, 2, 1)
    _, manifest = run(
        tmp_path / "b", node_table(4), edge_table(), "input.duplicates=sum"
    )
    assert not manifest.facts["weighted"]


def test_progress_reports_each_step(tmp_path):
    reported = []

    def note(what, done, total):
        reported.append(f"{what} {done}/{total}")

    run(tmp_path, node_table(4), edge_table(), progress=note)
    assert {"read nodes 4/4", "read edges 3/3", "write partitions 2/2"} <= set(reported)


def test_csv_and_other_column_names_work(tmp_path):
    named = "node_id=name", "label=group", "features=[y,x]", "src=from", "dst=to"
    stage, manifest = run(
        tmp_path,
        "name,group,x,y\nb,red,1,2.5\na,blue,3,4\nc,,5,6\n",
        "from,to,w\na,b,1\nb,c,2.5\n",
        *(f"columns.{each}" for each in (*named, "weight=w")),
        "features.scale=none",
    )
    assert layout.load_ids(manifest).values.to_pylist() == ["a", "b", "c"]
    assert features_of(stage, manifest).tolist() == [[4, 3], [2.5, 1], [6, 5]]
    assert layout.load_labels(labels_of(tmp_path)[1]).codes.tolist() == [0, 1, -1]
    assert labels_of(tmp_path)[1].facts["classes"] == ["blue", "red"]
    dense = layout.read_adjacency(manifest).toarray()
    assert dense[1, 0] == 1.0
    assert dense[2, 1] == dense[1, 2] == 2.5


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        (pa.array([10, 9, None, 9], pa.int16()), [9, 10], [1, 0, -1, 0]),
        (pa.array(["b", "a", None, "é"]), ["a", "b", "é"], [1, 0, -1, 2]),
        (pa.array([True, None, False, True]), [False, True], [1, -1, 0, 1]),
        (pa.array([1.0, None, float("nan"), 0.0]), [0, 1], [1, -1, -1, 0]),
        (
            pa.array(["b", "a", None, "b"]).dictionary_encode(),
            ["a", "b"],
            [1, 0, -1, 1],
        ),
    ],
    ids=["int", "string", "bool", "whole floats", "dictionary"],
)
def test_classes_are_sorted_and_coded(tmp_path, labels, classes, codes):
    run(tmp_path, node_table(4, label=labels), edge_table())
    _, manifest = labels_of(tmp_path)
    assert manifest.facts["classes"] == classes
    assert layout.load_labels(manifest).codes.tolist() == codes


def test_nodes_of_another_role_and_with_a_missing_value_are_unlabelled(
    tmp_path,
):
    labels = ["a", "b", "a", " NA", "b", "a"]
    roles = ["train", "train", "calibration", "", "calibration", "test"]
    nodes = node_table(6, role=pa.array(roles), label=pa.array(labels))
    run(tmp_path / "auto", nodes, edge_table())
    _, manifest = labels_of(tmp_path / "auto")
    assert layout.load_labels(manifest).codes.tolist() == [0, 1, 0, -1, 1, -1]
    plain = nodes.drop_columns(["role"])
    run(tmp_path / "named", plain, edge_table(), "labels.missing=[b]")
    _, manifest = labels_of(tmp_path / "named")
    assert manifest.facts["classes"] == [" NA", "a"]
    run(tmp_path / "none", plain, edge_table(), "labels.missing=[]")
    assert labels_of(tmp_path / "none")[1].facts["classes"] == [" NA", "a", "b"]
    codes = node_table(6, label=pa.array([-1, 0, 1, 1, 0, 2]))
    run(tmp_path / "codes", codes, edge_table(), "labels.missing=[-1.0, 2]")
    assert labels_of(tmp_path / "codes")[1].facts["class_counts"] == [2, 2]


def test_roles_count_in_any_case_and_only_with_a_label(tmp_path):
    roles = ["train", "Train", " calibration", "CALIBRATION", None, "train"]
    labels = [0, 1, 0, 1, 1, None]
    nodes = node_table(6, role=pa.array(roles), label=pa.array(labels))
    run(tmp_path, nodes, edge_table())
    _, manifest = labels_of(tmp_path)
    assert manifest.facts["has_roles"]
    assert layout.load_labels(manifest).roles.tolist() == [0, 0, 1, 1, -1, -1]
    empty = node_table(4, role=pa.nulls(4))
    run(tmp_path / "b", empty, edge_table())
    assert not labels_of(tmp_path / "b")[1].facts["has_roles"]


FEATURES = {
    "variable lists": pa.array([[1, 2]] * 4, pa.list_(pa.int32())),
    "double lists": pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float64(), 2)),
    "half lists": pa.array([np.float16([1, 2])] * 4, pa.list_(pa.float16(), 2)),
    "booleans": pa.array([[True, False]] * 4, pa.large_list(pa.bool_())),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features_of_every_kind_become_float32(tmp_path, name):
    _, manifest = run(tmp_path, node_table(4, features=FEATURES[name]), edge_table())
    table = layout.load_nodes(manifest, 0, ["features"])
    assert table.schema.field("features").type == pa.list_(pa.float32(), 2)
    due = [float(v) for v in FEATURES[name][0].as_py()]
    assert table["features"][0].as_py() == due
    assert manifest.facts["n_features"] == 2


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        (node_table(4), ["columns.features=null"]),
        (node_table(4).drop_columns("features"), []),
    ],
)
def test_no_features_means_the_constant_one(tmp_path, nodes, chosen):
    stage, manifest = run(tmp_path, nodes, edge_table(), *chosen)
    assert features_of(stage, manifest).tolist() == [[1.0]] * 4


NODES = {
    "no id column": (node_table(4).drop_columns("node_id"), "no column 'node_id'"),
    "no label column": (node_table(4).drop_columns("label"), "no column 'label'"),
    "no rows": (node_table(4).slice(0, 0), "node table .* has no rows"),
    "null id": (
        node_table(4, node_id=pa.array([0, 1, None, 3])),
        "'node_id' is null in row 3 of .*nodes.parquet",
    ),
    "same id": (node_table(4, node_id=[0, 1, 1, 3]), "node id 1 occurs more than once"),
    "no labels": (node_table(4, label=pa.nulls(4, pa.int8())), "of no class"),
    "null labels": (node_table(4, label=pa.nulls(4)), "of no class"),
    "one class": (node_table(4, label=["x"] * 4), r"of \['x'\]: label nodes of two"),
    "odd label": (
        node_table(4, label=[b"x"] * 4),
        "is binary: write labels as integers",
    ),
    "fractions": (
        node_table(4, label=[0.5, 1, 2, 3]),
        "is 0.5 in row 1 of .*labels are integers",
    ),
    "odd text": (
        node_table(4, label=pa.array([b"\xff", b"a", b"b", b"c"]).view(pa.string())),
        "text that is not UTF-8",
    ),
    "role type": (
        node_table(4, role=pa.array([[1]] * 4)),
        "role column 'role' .* is list",
    ),
    "features of text": (node_table(4, features=[["a"]] * 4), "is list<.*string>"),
    "features of structs": (
        node_table(4, features=[{"a": 1.0}] * 4),
        "'features' .* is struct<.*>, which cannot be used: leave it out of",
    ),
    "empty features": (
        node_table(4, features=pa.array([[]] * 4, pa.list_(pa.float32()))),
        "holds 0 features in row 1",
    ),
    "features of two lengths": (
        node_table(4, features=[[1.0], [1.0], [1.0, 2.0], [1.0]]),
        r"holds 2 features in row 3 .* and 1 in another row",
    ),
    "infinite feature": (
        node_table(4, features=[[1.0, 2.0], [1.0, float("inf")], [1.0, 2.0], [1.0, 2]]),
        r"'features' \(feature 1\) is infinite .* in row 2 .*: correct the value",
    ),
    "huge feature": (
        node_table(4, features=[[1.0], [1e300], [1.0], [1.0]]),
        "too large for float32 in row 2",
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_a_node_table_that_cannot_be_used_is_refused(tmp_path, name):
    nodes, words = NODES[name]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(InputError, match=words) as caught:
        run(tmp_path, nodes, edge_table(), f"scratch={scratch}")
    assert "\n" not in str(caught.value)
    assert not list(scratch.iterdir())
    assert RunDirectory(tmp_path / "out").stage("graph").manifest() is None


EDGES = {
    "no source": (edge_table().drop_columns("src"), "no column 'src'"),
    "no rows": (edge_table().slice(0, 0), "edge table .* has no rows"),
    "unknown node": (
        edge_table([(0, 1), (7, 2)]),
        "'src' names node 7 in row 2 of .*edges.parquet, .*input.unknown_nodes",
    ),
    "null end": (edge_table([(0, 1), (1, None)]), "'dst' is null in row 2"),
    "negative": (edge_table(weight=[1, -1, 1]), "holds -1 in row 2"),
    "not finite": (edge_table(weight=[1, float("inf"), 1.0]), "holds inf in row 2"),
    "null weight": (edge_table(weight=[1.0, None, 1.0]), "holds null in row 2"),
    "huge weight": (edge_table(weight=[1.0, 2e15, 1.0]), "between 0 and 1e15"),
    "odd weight": (edge_table(weight=["a", "b", "c"]), "is string, not a number"),
    "copies differ": (
        edge_table([(3, 1), (3, 1)], weight=[1.0, 2.0]),
        "edge 3 -> 1 occurs more than once.*set input.duplicates to sum",
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_table_that_cannot_be_used_is_refused(tmp_path, name):
    links, words = EDGES[name]
    with pytest.raises(InputError, match=words) as caught:
        run(tmp_path, node_table(4), links)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("columns.role=part", "set columns.role"),
        ("columns.weight=w", "set columns.weight"),
        ("columns.features=[x]", "no column 'x'"),
        (
            "columns.features=label",
            r"is int64, .* names in a list, \[label\]",
        ),
        (
            "columns.features=[label, features]",
            "column 'features' .* cannot be used: leave it out of",
        ),
    ],
)
def test_a_named_column_that_is_not_there_is_refused(tmp_path, override, words):
    with pytest.raises(InputError, match=words):
        run(tmp_path, node_table(4), edge_table(), override)


def test_settings_that_cannot_be_met_are_refused(tmp_path):
    with pytest.raises(SettingsError, match="partitions = 5 is more than"):
        run(tmp_path, node_table(4), edge_table(), partitions=5)
    with pytest.raises(SettingsError, match=r"scratch = '.*absent' cannot be written"):
        run(tmp_path, node_table(4), edge_table(), f"scratch={tmp_path}/absent")


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"node_id": [4, 5, 6, 7], "label": ["a"] * 4}, "holds string in"),
        (
            {
                "node_id": [4, 5, 6, 7],
                "features": pa.array([[1.0]] * 4, pa.list_(pa.float32(), 1)),
            },
            "holds 1 features in row 1 .* and 2 in another row",
        ),
    ],
    ids=["labels", "features"],
)
def test_files_of_one_table_that_disagree_are_refused(tmp_path, second, words):
    nodes = [node_table(4), node_table(4, **second)]
    with pytest.raises(InputError, match=words):
        run(tmp_path, nodes, edge_table())


def test_a_node_table_that_changes_while_it_is_read_is_noticed(tmp_path, monkeypatch):
    real = module.read_edges
    for n in (3, 5):

        def meddle(*arguments, n=n):
            pq.write_table(node_table(n), tmp_path / str(n) / "nodes.parquet")
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(module, "read_edges", meddle)
            with pytest.raises(InfrastructureError, match="changed while it was read"):
                run(tmp_path / str(n), node_table(4), edge_table())


def test_weights_that_add_up_too_far_are_refused(tmp_path):
    links = edge_table([(0, 1), (0, 1)], weight=[6e14, 6e14])
    with pytest.raises(InputError, match=r"add up to 1.2e\+15, which is more than"):
        run(tmp_path, node_table(4), links, "input.duplicates=sum")


def test_counts_that_do_not_add_up_are_a_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_files.Partition, "n_edges", 0)
    with pytest.raises(StageError, match=r"partitions hold \(4, 0\) nodes and edges"):
        run(tmp_path, node_table(4), edge_table())


def test_the_partitions_table_fits_its_schema(tmp_path):
    more = {"partitions": 3}
    _, manifest = run(tmp_path, *larger(), "input.duplicates=sum", **more)
    table = partitions_table(manifest, itemsize=2, width=64)
    schemas.conform(table, "partitions", "test")
    assert table["bytes"].to_pylist() == [h * 128 for h in manifest.facts["halo"]]
    assert sum(table["owned"].to_pylist()) == 60


def test_features_wider_than_a_block_stay_in_order(tmp_path):
    values = np.arange(50 * 40, dtype=np.float32).reshape(50, 40)
    features = pa.FixedSizeListArray.from_arrays(values.ravel(), 40)
    nodes = node_table(50, features=features)
    nodes = nodes.take(np.random.default_rng(0).permutation(50))
    small = "input.memory=1 KiB", "features.scale=none"
    found = features_of(*run(tmp_path, nodes, edge_table(), *small, partitions=3))
    assert (found == values).all()
