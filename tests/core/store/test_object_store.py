"""Run directories and tables on an object store: a real S3 server on loopback."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.chaos.publishing import line_of, settings_of, started
from tests.conftest import small_settings, wait_until, write_graph
from tests.object_store import Key, ObjectStore, serving
from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist import pipeline
from xnq_dist.core.errors import InputError
from xnq_dist.core.store import (
    POINTER,
    Folder,
    RunDirectory,
    delete_damage,
    read_published,
    verify,
)
from xnq_dist.due import nothing_changed
from xnq_dist.graph import contents
from xnq_dist.graph.profile.inputs import read_contents
from xnq_dist.graph.sources import Sources
from xnq_dist.jobs import run_stages
from xnq_dist.steps.publish import publish

SETTINGS = small_settings("partitions=2", "reservoir.supersteps=3", "reservoir.dim=8")
NODES = 120
AGED = 2.2
"""Slightly more than the age in seconds from which a table's digest is stored."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with serving(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Path in the bucket that no other test uses."""
    return f"bucket/{request.node.name.replace('[', '-').strip(']')}"


def write_tables(folder: Path, shift: int = 0, changed: int = 0) -> Sources:
    """A small graph and eight communities, in the store; some labels changed."""
    graph = write_graph(folder, nodes=NODES, edges=400)
    nodes = np.arange(NODES)
    members = pa.table({"community": (nodes + shift) // 15, "node_id": nodes})
    pq.write_table(members, folder / "pages.parquet")
    table = pq.read_table(graph.sources.nodes)
    labels = graph.labels.copy()
    known = np.flatnonzero(labels >= 0)[:changed]
    labels[known] = 1 - labels[known]
    column = pa.array(labels.astype(np.int64), mask=labels < 0)
    # Not compressed: other values take as many bytes.
    pq.write_table(
        table.set_column(table.schema.get_field_index("label"), "label", column),
        graph.sources.nodes,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
    )
    return Sources(graph.sources.nodes, graph.sources.edges, f"{folder}/pages.parquet")


def uploaded(store: ObjectStore, sources: Sources, path: str) -> Sources:
    """The tables as objects."""
    uris = []
    for file in sources.paths.values():
        name = f"{path}/{Path(file).name}"
        store.upload(file, name)
        uris.append(store.uri(name))
    return Sources(*uris)


def run_on(out: str, sources: Sources, client: Any) -> RunDirectory:
    with pipeline.open_run(out, sources) as run:
        run_stages(run, sources, SETTINGS, client)
    return run


def prevalence(out: str) -> list[dict[str, Any]]:
    table = read_published(out).read("prevalence").drop_columns("run_id")
    return table.to_pylist()


@pytest.fixture(scope="module")
def finished(
    store: ObjectStore, tmp_path_factory: pytest.TempPathFactory, thread_client: Any
) -> tuple[str, Sources]:
    """Path of a complete run in the bucket, and its tables there."""
    local = write_tables(tmp_path_factory.mktemp("tables"))
    sources = uploaded(store, local, "bucket/tables")
    time.sleep(AGED)
    run_on(store.uri("bucket/finished"), sources, thread_client)
    return "bucket/finished", sources


@pytest.mark.ci
def test_run_on_a_store_answers_as_on_a_disk(store, finished, tmp_path, thread_client):
    path, _ = finished
    out = store.uri(path)
    run_on(str(tmp_path / "run"), write_tables(tmp_path / "t"), thread_client)
    assert prevalence(out) == prevalence(str(tmp_path / "run"))
    assert verify(out) == []
    pointer = json.loads(store.get(f"{path}/{POINTER}"))
    version = read_published(out)
    assert pointer["run_id"] == version.run_id
    for record in version.manifest.files:
        usual = store.get(f"{path}/{record.name}")
        assert usual == store.get(f"{path}/versions/{version.run_id}/{record.name}")
    written = store.names(f"{path}/")
    assert not [name for name in written if name.endswith((".tmp", "_lock.json"))]
    secret = b"TESTSECRET"
    assert not [name for name in written if secret in store.get(f"{path}/{name}")]


def test_text_tables_on_a_store_have_the_digests_of_parquet(
    store, finished, place, tmp_path, monkeypatch
):
    _, sources = finished
    settings = small_settings("columns.features=null")
    uris = []
    for given in (sources.nodes, sources.edges):
        file = Path(given.partition("?")[0]).name
        table = pq.read_table(io.BytesIO(store.get(f"bucket/tables/{file}")))
        text = io.BytesIO()
        plain = table.drop_columns([n for n in table.column_names if n == "features"])
        pacsv.write_csv(plain, text, pacsv.WriteOptions(delimiter="\t"))
        name = f"{place}/{len(uris)}.tsv.gz"
        store.put(name, gzip.compress(text.getvalue()))
        uris.append(store.uri(name))
    tables = Sources(*uris)
    time.sleep(AGED)
    kept = Folder.of(store.uri(f"{place}/run"))
    found = read_contents(kept, tables, settings)
    assert found == read_contents(Folder.of(tmp_path), sources, settings)
    monkeypatch.setattr("xnq_dist.graph.tables._TEXTS", {})
    monkeypatch.setattr("xnq_dist.graph.text_tables.TextFile._blocks", None)
    assert read_contents(kept, tables, settings) == found


def test_addresses_of_results_are_those_of_the_objects(store, finished):
    path, sources = finished
    summary = nothing_changed(store.uri(path), sources, SETTINGS)
    shown = store.uri(f"{path}/prevalence.parquet").replace("TESTKEY:TESTSECRET", "***")
    assert summary["prevalence"] == shown
    version = read_published(store.uri(path))
    assert f"/versions/{version.run_id}/prevalence.parquet?" in version.path(
        "prevalence"
    )


def test_unchanged_run_asks_for_the_tags_of_tables_alone(store, finished):
    path, sources = finished
    before = len(store.requests())
    assert nothing_changed(store.uri(path), sources, SETTINGS) is not None
    asked = [
        (method, name)
        for method, name in store.requests()[before:]
        if name.startswith("bucket/tables/")
    ]
    assert {name for _, name in asked} == {
        f"bucket/tables/{table}.parquet" for table in ("nodes", "edges", "pages")
    }
    assert {method for method, _ in asked} == {"HEAD"}


def test_digest_is_recalled_while_an_object_keeps_its_etag(
    store, place, tmp_path, monkeypatch
):
    monkeypatch.setattr(contents, "RACY", 0)
    sources = uploaded(store, write_tables(tmp_path / "t"), place)
    folder = Folder.of(tmp_path / "kept")
    name = place.removeprefix("bucket/")

    def digests() -> tuple[dict[str, Any], int]:
        before = len(store.requests())
        found = read_contents(folder, sources, SETTINGS)
        asked = store.requests()[before:]
        return found, sum(way == "GET" and name in path for way, path in asked)

    first, gets = digests()
    assert gets > 0
    time.sleep(1.1)  # the store's times are in whole seconds
    digests()
    assert digests() == (first, 0)
    store.upload(tmp_path / "t" / "nodes.parquet", f"{place}/nodes.parquet")
    assert digests()[0] == first
    store.upload(
        write_tables(tmp_path / "other", changed=2).nodes, f"{place}/nodes.parquet"
    )
    other, gets = digests()
    assert gets > 0
    assert other["labels"] != first["labels"]
    assert other["edges"] == first["edges"]


def look(store: ObjectStore, path: str) -> str:
    """The published run_id, including tables at their usual paths."""
    for name, rows in (("prevalence", 20), ("anomalies", 20), ("partitions", 4)):
        table = pq.read_table(io.BytesIO(store.get(f"{path}/{name}.parquet")))
        assert table.num_rows == rows
        assert len(set(table["run_id"].to_pylist())) == 1
    assert store.get(f"{path}/report.html").rstrip().endswith(b"</html>")
    json.loads(store.get(f"{path}/{POINTER}"))
    version = read_published(store.uri(path))
    for name in ("prevalence", "anomalies", "partitions"):
        assert set(version.read(name)["run_id"].to_pylist()) == {version.run_id}
    return version.run_id


def poll(store: ObjectStore, path: str, ended: threading.Event) -> list[str]:
    """Published results, polled repeatedly."""
    seen = []
    while not ended.is_set():
        seen.append(look(store, path))
    return seen


def wait_for_version(store: ObjectStore, path: str, number: int) -> None:
    """Wait until a number of versions exist, complete or not."""

    def found() -> bool:
        names = store.names(f"{path}/versions/")
        return len({name.partition("/")[0] for name in names}) >= number

    wait_until(found, 60, 0.02)


@pytest.mark.faults
def test_reader_sees_complete_results_while_runs_publish_and_are_killed(store, place):
    out = store.uri(place)
    names = [f"page {number}" for number in range(10)]
    run = write_fake_run(out, [prevalence_table(names, intervals=True)])
    publish(run, settings_of(0))
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        polls = pool.submit(poll, store, place, ended)
        try:
            for number in range(1, 4):
                publish(run, settings_of(number))
            with started("--publish", out, "--number", "4") as child:
                assert line_of(child.stdout) == "ready"
                child.stdin.write("go\n")
                child.stdin.flush()
                wait_for_version(store, place, 5)
                child.kill()
            delete_damage(run)
            publish(run, settings_of(5))
        finally:
            ended.set()
    seen = polls.result()
    assert len(set(seen)) >= 3
    assert verify(out) == []
    assert look(store, place) == read_published(out).run_id


def test_record_is_complete_while_it_is_replaced_by_others_of_other_sizes(store, place):
    folder = Folder.of(store.uri(place))
    sizes = [10, 5000, 200, 90000]
    folder.write_record("r.json", {"text": ""})
    ended = threading.Event()

    def write() -> None:
        writer = Folder.of(folder.location)
        while not ended.is_set():
            for size in sizes:
                writer.write_record("r.json", {"text": "x" * size})

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        end = time.monotonic() + 1
        seen = set()
        try:
            while time.monotonic() < end:
                found = folder.read_record("r.json")
                assert found is not None
                seen.add(len(found["text"]))
        finally:
            ended.set()
        writing.result()
    assert len(seen) > 1
    assert seen <= {0, *sizes}


def test_interrupted_write_keeps_the_previous_object(store, place):
    folder = Folder.of(store.uri(place))
    folder.write_bytes(POINTER, b"whole")
    with pytest.raises(TypeError):
        folder.write_bytes(POINTER, object())  # between opening and writing
    assert store.get(f"{place}/{POINTER}") == b"whole"
    assert store.names(f"{place}/") == [POINTER]


# Stores that refuse or are not there


def command(*arguments: str) -> tuple[int, str]:
    """Exit status and last line of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "xnq_dist.app.cli", *arguments],
        env=os.environ | {"AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()[-1]


def run_of(sources: Sources, out: str) -> list[str]:
    return ["run", "--nodes", sources.nodes, "--edges", sources.edges, "--out", out]


@pytest.mark.slow
def test_a_store_that_refuses_a_key_ends_with_status_2(store, finished, tmp_path):
    path, _ = finished
    local = write_tables(tmp_path / "t")
    reader = store.user("reader", "s3:Get*", "s3:List*")
    wrong = Key(reader.name, "WRONGSECRET")
    with store.checking_keys():
        for key, words in (
            (wrong, "refuses the access key"),
            (reader, "cannot be written"),
        ):
            out = store.uri(f"{path}-new", key)
            status, said = command(*run_of(local, out))
            assert status == 2, said
            assert words in said
            assert "WRONGSECRET" not in said
            assert reader.secret not in said
        status, said = command("doctor", "--verify", store.uri(path, wrong))
        assert (status, "refuses the access key" in said) == (2, True), said
        assert verify(store.uri(path, reader)) == []
        nodes = store.uri("bucket/tables/nodes.parquet", wrong)
        with pytest.raises(InputError, match=r"node table.*cannot be read"):
            pipeline.check_sources(Sources(nodes, local.edges), SETTINGS)


@pytest.mark.faults
def test_a_store_that_does_not_answer_ends_with_status_4(tmp_path):
    local = write_tables(tmp_path / "t")
    dead = ObjectStore("127.0.0.1:9", tmp_path).uri("bucket/run")
    for arguments in (run_of(local, dead), ["doctor", "--verify", dead]):
        status, said = command(*arguments)
        assert status == 4, said
        assert "does not answer" in said
        assert "run again" in said
        assert "TESTSECRET" not in said
