"""The graph stage with cuDF: the same files and messages as with the CPU.

Pandas stands in for cuDF on a CPU, with shuffled rows where cuDF does not guarantee an
order.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import rest_in
from tests.gpu.conftest import make_backend, play_a_gpu
from tests.gpu.standin import StandinBackend
from tests.graph import test_prepare as bodies
from tests.graph.graphs import edge_table, node_table
from xnq_dist.core import backend as backends
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import DoesNotFitError, InputError
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph import csr, gpu_ingest
from xnq_dist.graph import prepare as stage
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.tables import Sources

CUDF = "cluster.kind=cuda"


class PandasFrames:
    """Pandas in the role of cuDF, with the functions that we use."""

    def __init__(self):
        import pandas

        self.DataFrame = pandas.DataFrame

    def read_parquet(self, path, columns, row_groups, use_pandas_metadata):
        """Some row groups of one file."""
        assert not use_pandas_metadata
        (groups,) = row_groups
        found = pq.ParquetFile(path).read_row_groups(groups, columns=columns)
        return found.to_pandas(ignore_metadata=True)


def play_cudf(patch):
    """Replace cuDF by pandas, and the GPU by the stand-in."""
    import pandas

    frames = PandasFrames()
    merge = pandas.DataFrame.merge

    def shuffled(*args, **kwargs):
        return merge(*args, **kwargs).sample(frac=1.0, random_state=0)

    play_a_gpu(patch)
    patch.setattr(pandas.DataFrame, "merge", shuffled)
    patch.setattr(gpu_ingest, "data_frames", lambda: frames)
    return frames


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("pandas", id="pandas-for-cudf"),
        pytest.param("cudf", marks=pytest.mark.gpu),
    ],
)
def frames(request):
    """The data frame library; pandas has the same functions on a CPU."""
    if request.param == "cudf":
        make_backend("gpu")
        if importlib.util.find_spec("cudf") is None:
            pytest.skip("cudf is missing")
        yield backends.data_frames()
        return
    pytest.importorskip("pandas")
    with pytest.MonkeyPatch.context() as patch:
        yield play_cudf(patch)


def table_of(rows, kind, weighted, rng):
    """Nodes and edges with duplicates, reversed edges and loops, in many row groups."""
    plain = pa.array(range(60), pa.int64())
    ids = plain if kind == "consecutive" else bodies.ids_for(60, kind)
    ends = rng.integers(0, 60, (rows, 2))
    ends = np.concatenate([ends, ends[: rows // 4], ends[rows // 2 :, ::-1]])
    links = {"src": ids.take(pa.array(ends[:, 0])), "dst": ids.take(ends[:, 1])}
    if weighted:
        # By ends, whichever way: what is there twice is no conflict.
        links["weight"] = pa.array((ends.sum(axis=1) % 7) / 3 + 0.1)
    return node_table(60, node_id=ids), pa.table(links)


def prepared(folder, nodes, links, *overrides, size=100):
    """The stage, from edges in small row groups."""
    folder.mkdir()
    pq.write_table(nodes, folder / "nodes.parquet")
    pq.write_table(links, folder / "edges.parquet", row_group_size=size)
    sources = Sources(str(folder / "nodes.parquet"), str(folder / "edges.parquet"))
    directory = RunDirectory(folder / "out")
    settings = load_settings(overrides=overrides)
    return stage.prepare(directory, sources, settings, 3)


def same(first, second):
    """Whether two stages are equal, except for the locations of the tables."""
    files = bodies.digests(first) == bodies.digests(second)
    return files and first.facts == second.facts


@pytest.mark.parametrize(
    "kind", rest_in("standin", ("string", "dense", "sparse", "consecutive"), "string")
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rules", ["directed", "undirected", "sum", "drop"])
def test_the_graph_is_that_of_the_cpu(frames, kind, weighted, rules, tmp_path):
    rng = np.random.default_rng(5)
    nodes, links = table_of(400, kind, weighted, rng)
    if rules == "drop":
        nodes = nodes.slice(0, 50)
    if rules == "sum":
        links = links.set_column(1, "dst", links["dst"].dictionary_encode())
    chosen = {
        "directed": ["input.directed=true"],
        "undirected": [],
        "sum": ["input.duplicates=sum"],
        "drop": ["input.unknown_nodes=drop"],
    }[rules]
    if weighted and kind == "string":
        chosen = [*chosen, "input.memory=32 KiB"]  # several runs, merged
    here = prepared(tmp_path / "here", nodes, links, *chosen)
    there = prepared(tmp_path / "there", nodes, links, *chosen, CUDF)
    assert same(here, there)
    assert here.facts["counts"]["duplicates_dropped"] > 0


def test_reads_stay_within_the_memory(frames, tmp_path, monkeypatch):
    _, links = table_of(400, "dense", False, np.random.default_rng(1))
    nodes = node_table(60, node_id=bodies.ids_for(60, "dense"))
    pieces = []
    read = gpu_ingest.CudfPairs._read

    def counted(self, share, *rest):
        pieces.append((share.first, share.n_rows))
        return read(self, share, *rest)

    monkeypatch.setattr(gpu_ingest.CudfPairs, "_read", counted)
    expected = [
        [(0, 700)],
        [(first, min(200, 700 - first)) for first in range(0, 700, 200)],
        [],  # Arrow reads row groups that are too large
    ]
    made = []
    for number, memory in enumerate(("1 GiB", "64 KiB", "8 KiB")):
        # The memory also determines the partitioner.
        chosen = CUDF, "partitioner=stream", f"input.memory={memory}"
        made.append(prepared(tmp_path / str(number), nodes, links, *chosen))
        assert pieces == expected[number]
        pieces.clear()
    assert same(made[0], made[1])
    assert same(made[0], made[2])


FAULTS = {
    **bodies.EDGES,
    # The CPU looks at a whole batch's sources first, wherever the row groups end.
    "two": (edge_table([(0, 1), (1, 9), (2, 3), (8, 3)]), "'src' names node 8 in row"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("groups", [1, 1000])
def test_a_table_is_refused_with_the_sentence_of_the_cpu(
    frames, name, groups, tmp_path
):
    links, words = FAULTS[name]
    told = []
    for engine, chosen in (("cpu", "cluster.kind=local"), ("cudf", CUDF)):
        with pytest.raises(InputError, match=words) as caught:
            prepared(tmp_path / engine, node_table(4), links, chosen, size=groups)
        told.append(str(caught.value).replace(f"/{engine}/", "/"))
    assert told[0] == told[1]


def test_what_cudf_cannot_read_is_read_by_arrow(frames, tmp_path, monkeypatch, caplog):
    nodes, links = table_of(300, "string", True, np.random.default_rng(2))
    memory = "input.memory=48 KiB"
    due = prepared(tmp_path / "due", nodes, links, memory)
    read, calls = frames.read_parquet, []

    def fails(path, **options):
        calls.append(path)
        if len(calls) % 2:
            raise RuntimeError("a page of an odd kind")
        return read(path, **options)

    monkeypatch.setattr(frames, "read_parquet", fails)
    found = prepared(tmp_path / "a", nodes, links, CUDF, memory)
    assert same(due, found)
    assert len(calls) > 2
    assert "is read by Arrow: cuDF failed (a page of an odd kind)" in caplog.text

    def full(path, **options):
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr(frames, "read_parquet", full)
    with pytest.raises(DoesNotFitError, match=r"bad_alloc\): set a smaller input\.mem"):
        prepared(tmp_path / "b", nodes, links, CUDF)


def test_the_memory_of_the_gpu_decides_what_reads_edges(monkeypatch, caplog):
    pytest.importorskip("pandas")
    play_cudf(monkeypatch)
    ids = NodeIds(pa.array([3, 5, 9], pa.int64()))
    settings = load_settings(overrides=[CUDF])
    for free, memory in ((2**34, 2**30), (2**29, int(2**29 * 0.9) - 84)):
        monkeypatch.setattr(StandinBackend, "free_bytes", lambda _, free=free: free)
        assert gpu_ingest.edge_pairs(settings, ids).memory == memory
    monkeypatch.setattr(StandinBackend, "free_bytes", lambda _: 2**20)
    assert gpu_ingest.edge_pairs(settings, ids) is csr.arrow_pairs
    assert "edges are read on the CPU: reading edges on the GPU needs" in caplog.text
    monkeypatch.setattr(gpu_ingest, "data_frames", backends.data_frames)
    monkeypatch.setattr(backends, "missing", lambda *names: [*names])
    assert gpu_ingest.edge_pairs(settings, ids) is csr.arrow_pairs
    assert "edges are read on the CPU: cudf is not installed: pip" in caplog.text
