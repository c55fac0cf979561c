"""Downloads from a real web server: the folder is complete or does not exist."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from types import MappingProxyType

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

from tests.evaluation.datasets.forms import (
    served,
    write_graphsaint,
    write_heterophilous,
    write_planetoid,
    write_zip,
)
from xnq_dist.core.errors import (
    InfrastructureError,
    InputError,
    RunDirectoryError,
    SettingsError,
)
from xnq_dist.evaluation.datasets import known_graphs as registry
from xnq_dist.evaluation.datasets.fetch import check_graph, describe, fetch
from xnq_dist.evaluation.datasets.graphs import RawGraph
from xnq_dist.evaluation.datasets.known_graphs import (
    Dataset,
    Expected,
    RemoteFile,
    Source,
)

NODES = 120
RNG = np.random.default_rng(5)
FEATURES = RNG.random((NODES, 3)).astype(np.float32)
LABELS = (np.arange(NODES) % 3 == 0).astype(np.int64)
EDGES = np.stack([np.arange(NODES - 1), np.arange(1, NODES)], axis=1)
EXPECTED = Expected(NODES, 2 * len(EDGES), 3, 2, (80, 40))


@pytest.fixture
def archive(tmp_path) -> bytes:
    path = tmp_path / "made.npz"
    write_heterophilous(path, FEATURES, LABELS, EDGES)
    return path.read_bytes()


@pytest.fixture
def known(monkeypatch):
    """Replace the paper's graphs in the registry by small ones."""

    def put(*sources: Source, name: str = "tolokers", splits=None) -> None:
        dataset = Dataset(
            name,
            sources,
            "a licence",
            "a note",
            "Nothing.",
            splits or {"splits.parquet": None},
        )
        monkeypatch.setattr(registry, "DATASETS", MappingProxyType({name: dataset}))

    return put


def single(url: str, **facts) -> Source:
    file = RemoteFile("some.npz", url, **facts)
    return Source("home", "heterophilous", (file,), EXPECTED)


def leftovers(root) -> list[str]:
    return sorted(path.name for path in root.iterdir()) if root.exists() else []


def test_a_graph_is_fetched_checked_and_written_in_the_shared_form(
    tmp_path, archive, known
):
    digest = hashlib.sha256(archive).hexdigest()
    root = tmp_path / "data"
    steps: list[tuple[str, int, int]] = []
    with served({"data/some.npz": archive}) as address:
        url = f"{address}/data/some.npz"
        known(single(url, sha256=digest, size=len(archive)))
        done = fetch("tolokers", root, progress=lambda *step: steps.append(step))
    assert done.folder == root / "tolokers"
    assert leftovers(root) == ["tolokers"]
    assert steps[-1] == ("some.npz", len(archive), len(archive))
    assert not done.unpinned
    nodes = pq.read_table(done.folder / "nodes.parquet")
    assert nodes.column_names == ["node_id", "label", "features"]
    assert nodes["label"].to_numpy().tolist() == LABELS.tolist()
    features = nodes["features"].combine_chunks().flatten().to_numpy()
    assert np.array_equal(features.reshape(NODES, 3), FEATURES)
    edges = pq.read_table(done.folder / "edges.parquet")
    assert edges.num_rows == 2 * len(EDGES)
    splits = pq.read_table(done.folder / "splits.parquet").to_pylist()
    assert len(splits) == 5 * NODES
    assert sum(row["role"] == "test" for row in splits) == NODES
    meta = json.loads((done.folder / "meta.json").read_text())
    assert meta["num_nodes"] == NODES
    assert meta["class_counts"] == {"0": 80, "1": 40}
    assert meta["symmetric"] is True
    assert meta["licence"] == "a licence"
    (file,) = meta["source"]["files"]
    assert file == {
        "name": "some.npz",
        "origin": url,
        "sha256": digest,
        "bytes": len(archive),
        "pinned": True,
    }


def test_without_a_recorded_hash_the_computed_one_is_reported_and_can_be_pinned(
    tmp_path, archive, known
):
    digest = hashlib.sha256(archive).hexdigest()
    with served({"some.npz": archive}) as address:
        known(single(f"{address}/some.npz"))
        (file,) = fetch("tolokers", tmp_path / "a").unpinned
        assert file.sha256 == digest


def test_another_file_than_the_recorded_one_is_refused(tmp_path, archive, known):
    root = tmp_path / "data"
    with served({"some.npz": archive}) as address:
        url = f"{address}/some.npz"
        for facts, reason in (
            ({"sha256": "0" * 64}, "was changed"),
            ({"size": len(archive) + 1}, "bytes instead of"),
            ({"size": len(archive) - 1}, "larger than"),
        ):
            known(single(url, **facts))
            with pytest.raises(InputError, match=reason):
                fetch("tolokers", root)
            assert leftovers(root) == []


def test_a_download_that_stops_half_way_is_reported_and_removed(
    tmp_path, archive, known
):
    root = tmp_path / "data"
    with served({"some.npz": archive}, short=100) as address:
        known(single(f"{address}/some.npz"))
        with pytest.raises(InfrastructureError, match="stopped after"):
            fetch("tolokers", root)
    assert leftovers(root) == []


def test_a_missing_file_and_no_network_say_what_else_can_be_done(
    tmp_path, archive, known
):
    with served({}) as address:
        known(single(f"{address}/some.npz"))
        with pytest.raises(InputError, match=r"returned 404 .*raw of XNQ_DATA_DIR"):
            fetch("tolokers", tmp_path)
    unreachable = r"cannot be reached .*raw of XNQ_DATA_DIR"
    with pytest.raises(InfrastructureError, match=unreachable):
        fetch("tolokers", tmp_path)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "some.npz").write_bytes(archive)
    assert fetch("tolokers", tmp_path).files[0].origin == "a local file"


def test_only_web_addresses_are_opened(tmp_path, known):
    known(single("file:///etc/hostname"))
    with pytest.raises(SettingsError, match="begin it with https"):
        fetch("tolokers", tmp_path)


def test_a_web_page_in_place_of_a_file_is_not_a_graph(tmp_path, known):
    with served({"some.npz": b"<html>sign in</html>"}) as address:
        known(single(f"{address}/some.npz"))
        with pytest.raises(InputError, match="not a NumPy archive"):
            fetch("tolokers", tmp_path / "data")
    assert leftovers(tmp_path / "data") == []


def test_a_folder_that_is_there_stays(tmp_path, archive, known):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "some.npz").write_bytes(archive)
    known(single("http://127.0.0.1:9/some.npz"))
    root = tmp_path / "data"
    first = fetch("tolokers", root, raw=raw)
    assert first.files[0].origin == "a local file"
    mark = first.folder / "mark"
    mark.touch()
    second = fetch("tolokers", root, raw=raw)
    assert not second.files
    assert second.counts["num_nodes"] == NODES
    assert mark.exists()
    (first.folder / "meta.json").unlink()
    assert fetch("tolokers", root).counts == {}


def test_raw_files_of_any_home_are_taken_archives_whole_or_unpacked(tmp_path, known):
    expected = dataclasses.replace(EXPECTED, edges=len(EDGES))
    names = ("adj_full.npz", "feats.npy", "class_map.json")
    loose = tuple(RemoteFile(name, "http://127.0.0.1:9/") for name in names)
    packed = RemoteFile("all.zip", "http://127.0.0.1:9/", members=names)
    known(
        Source("loose", "graphsaint", loose, expected),
        Source("packed", "graphsaint", (packed,), expected),
        name="flickr",
    )
    ones = np.ones(len(EDGES))
    shape = (NODES, NODES)
    adjacency = csr_matrix((ones, (EDGES[:, 0], EDGES[:, 1])), shape=shape)
    raw, zipped = tmp_path / "raw", tmp_path / "zipped"
    write_graphsaint(raw, adjacency, FEATURES.astype(np.float64), LABELS)
    zipped.mkdir()
    write_zip(zipped / "all.zip", {f"flickr/{name}": raw / name for name in names})
    for number, (folder, source, home) in enumerate(
        [(raw, None, "loose"), (raw, "packed", "packed"), (zipped, None, "packed")]
    ):
        root = tmp_path / str(number)
        done = fetch("flickr", root, raw=folder, source=source)
        assert done.source == home
        assert done.counts["num_edges_directed_rows"] == len(EDGES)
    # the user's files are unchanged
    assert sorted(path.name for path in raw.iterdir()) == sorted(names)
    with pytest.raises(InputError, match="does not have the files of flickr"):
        fetch("flickr", tmp_path, raw=zipped, source="loose")
    with pytest.raises(SettingsError, match="choose one of loose, packed"):
        fetch("flickr", tmp_path, raw=zipped, source="nowhere")


def test_an_archive_without_its_members_is_refused(tmp_path, known, archive):
    file = RemoteFile("all.zip", "http://127.0.0.1:9/", members=("feats.npy",))
    known(Source("packed", "graphsaint", (file,), EXPECTED))
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "all.zip").write_bytes(archive)
    with pytest.raises(InputError, match=r"no member feats\.npy"):
        fetch("tolokers", tmp_path / "data", raw=raw)
    (raw / "all.zip").write_bytes(archive[:-30])
    with pytest.raises(InputError, match="not a complete zip"):
        fetch("tolokers", tmp_path / "data", raw=raw)


def test_cora_has_folds_of_both_its_tasks(tmp_path, known):
    labels = np.arange(NODES) % 3
    order = [NODES - 1, NODES - 2]
    neighbours = {int(a): [int(b)] for a, b in EDGES}
    raw = tmp_path / "raw"
    write_planetoid(raw, FEATURES, labels, neighbours, order, "ind.cora")
    files = tuple(
        RemoteFile(f"ind.cora.{part}", "http://127.0.0.1:9/")
        for part in ("allx", "tx", "ally", "ty", "graph", "test.index")
    )
    expected = Expected(NODES, len(EDGES), 3, 3)
    known(
        Source("home", "planetoid", files, expected, {"prefix": "ind.cora"}),
        name="cora",
        splits={"splits.parquet": 2, "splits_multiclass.parquet": None},
    )
    folder = fetch("cora-2", tmp_path / "data", raw=raw).folder
    tables = [pq.read_table(folder / f"splits{k}.parquet") for k in ("", "_multiclass")]
    assert not tables[0].equals(tables[1])


def graph(**changes) -> RawGraph:
    both = np.concatenate([EDGES, EDGES[:, ::-1]])
    return dataclasses.replace(RawGraph(LABELS, FEATURES, both), **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"edges": EDGES}, "directed edges: 119 in the files, 238"),
        ({"labels": 1 - LABELS}, r"nodes of each class: \(40, 80\)"),
        ({"features": FEATURES[:, :2]}, "features: 2"),
        ({"features": FEATURES * np.nan}, "not finite"),
    ],
    ids=["edges", "labels", "width", "nan"],
)
def test_a_graph_that_is_not_the_papers_is_refused_with_both_numbers(changes, reason):
    check_graph(graph(), EXPECTED, "some")
    with pytest.raises(InputError, match=reason):
        check_graph(graph(**changes), EXPECTED, "some")


def test_a_published_prevalence_stands_in_for_unknown_counts():
    expected = dataclasses.replace(EXPECTED, class_counts=None, share=0.33)
    check_graph(graph(), expected, "some")
    with pytest.raises(InputError, match=r"prevalence of class 1: 0\.67"):
        check_graph(graph(labels=1 - LABELS), expected, "some")


def test_counts_of_a_graph():
    edges = np.array([[0, 1], [1, 0], [0, 1], [2, 2], [3, 0]])
    found = describe(RawGraph(np.array([0, 1, -1, 1, 0]), FEATURES[:5], edges))
    assert found["num_edges_directed_rows"] == 5
    assert found["num_undirected_edges_no_self_loops"] == 2
    assert found["num_self_loops"] == 1
    assert found["num_duplicate_directed_rows"] == 1
    assert found["symmetric"] is False
    assert found["num_isolated_nodes"] == 1
    assert found["num_unlabelled"] == 1
    assert found["class_counts"] == {"0": 2, "1": 2}


def test_a_folder_that_cannot_be_made_is_named(tmp_path, archive, known):
    known(single("http://127.0.0.1:9/some.npz"))
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="choose another folder"):
        fetch("tolokers", tmp_path / "file")


def same(made, stored) -> None:
    """Two folders hold the same graph and folds."""
    for name in ("nodes", "edges", "splits"):
        left = pq.read_table(made / f"{name}.parquet")
        right = pq.read_table(stored / f"{name}.parquet")
        for column in left.column_names:
            one, other = left[column], right[column]
            if column == "role":
                one, other = one.cast("string"), other.cast("string")
                assert one.equals(other)
                continue
            if column == "features":
                one, other = (c.combine_chunks().flatten() for c in (one, other))
            assert np.array_equal(one.to_numpy(), other.to_numpy()), (name, column)


def stored_graph(folder) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    nodes = pq.read_table(folder / "nodes.parquet")
    features = nodes["features"].combine_chunks().flatten().to_numpy()
    edges = pq.read_table(folder / "edges.parquet")
    return (
        features.reshape(nodes.num_rows, -1),
        nodes["label"].to_numpy(),
        np.stack([edges["src"].to_numpy(), edges["dst"].to_numpy()], axis=1),
    )


@pytest.mark.data
def test_cora_in_its_public_form_is_the_stored_graph(data_folder, tmp_path):
    features, labels, edges = stored_graph(data_folder / "cora")
    neighbours: dict[int, list[int]] = {}
    for source, target in edges.tolist():
        neighbours.setdefault(source, []).append(target)
    order = np.random.default_rng(0).permutation(np.arange(1708, 2708)).tolist()
    raw = tmp_path / "raw"
    write_planetoid(raw, features, labels, neighbours, order, "ind.cora")
    # other bytes than the public files', so the recorded hashes do not match
    with pytest.raises(InputError, match="has the sha256"):
        fetch("cora", tmp_path, raw=raw)
    unpin(registry.DATASETS["cora"], raw, tmp_path, data_folder)


@pytest.mark.data
def test_tolokers_in_its_public_form_is_the_stored_graph(data_folder, tmp_path):
    features, labels, edges = stored_graph(data_folder / "tolokers")
    raw = tmp_path / "raw"
    raw.mkdir()
    once = edges[edges[:, 0] < edges[:, 1]]
    write_heterophilous(raw / "tolokers.npz", features, labels, once)
    unpin(registry.DATASETS["tolokers"], raw, tmp_path, data_folder)


@pytest.mark.data
def test_twitch_in_its_public_form_is_the_stored_graph(data_folder, tmp_path):
    features, labels, edges = stored_graph(data_folder / "twitch-de")
    raw = tmp_path / "raw"
    raw.mkdir()
    mixed = np.random.default_rng(0).permutation(edges)
    np.savez(raw / "DE.npz", features=features, target=labels, edges=mixed)
    made = fetch("twitch-de", tmp_path, raw=raw)
    assert made.source == "ptg"
    same(made.folder, data_folder / "twitch-de")


def unpin(dataset, raw, root, data_folder) -> None:
    """Fetch without the recorded hashes, and compare with the stored graph."""
    source = dataset.sources[0]
    files = tuple(
        dataclasses.replace(file, sha256=None, size=None) for file in source.files
    )
    bare = dataclasses.replace(source, files=files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            registry,
            "DATASETS",
            {dataset.name: dataclasses.replace(dataset, sources=(bare,))},
        )
        made = fetch(dataset.name, root, raw=raw)
    same(made.folder, data_folder / dataset.name)
