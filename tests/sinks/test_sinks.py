"""Delivery of published tables: once per run, all rows or none, no foreign table."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.report.fake_run import prevalence_table, write_fake_run
from tests.sinks.conftest import NAMES, Store, delta_store, sql_store
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InfrastructureError, SettingsError
from xnq_dist.core.progress import Progress, silent
from xnq_dist.core.schemas import conform
from xnq_dist.core.store import RunDirectory, read_published
from xnq_dist.due import nothing_changed
from xnq_dist.graph.tables import Sources
from xnq_dist.jobs import run_all
from xnq_dist.report import report
from xnq_dist.sinks import check_sinks, deliver, undelivered

T = TypeVar("T")


def rows_of(run_id: str, seed: int = 0, names: list[str] = NAMES) -> pa.Table:
    """Rows as they are published."""
    table = prevalence_table(names, seed=seed)
    return conform(table, "prevalence", "prevalence", run_id)


def write(store: Store, rows: pa.Table, run_id: str, name: str = "prevalence") -> None:
    import_module(f"xnq_dist.sinks.{store.sink}").write(
        rows, run_id, store.target, name
    )


def same(stored: list[dict[str, object]], *tables: pa.Table) -> bool:
    keys = ("run_id", "community", "class")
    rows = [row for table in tables for row in table.to_pylist()]
    return stored == sorted(rows, key=lambda row: [str(row[key]) for key in keys])


@pytest.fixture
def run(published: RunDirectory) -> RunDirectory:
    """A published run without deliveries."""
    published.folder.delete("_sinks.json")
    return published


def test_a_store_has_the_rows_of_each_run_once(store: Store) -> None:
    first, second = rows_of("aa11"), rows_of("bb22", seed=1)
    write(store, first, "aa11")
    assert same(store.read("prevalence"), first)
    write(store, second, "bb22")
    write(store, first, "aa11")
    assert same(store.read("prevalence"), first, second)


@pytest.mark.parametrize("kind", ["integers", "booleans"])
def test_ids_and_classes_keep_their_types(store: Store, kind: str) -> None:
    rows = rows_of("aa11")
    at = rows.schema.get_field_index("class")
    bots = pc.equal(rows["class"], "bot")
    typed = bots if kind == "booleans" else pc.cast(bots, pa.int64())
    rows = rows.set_column(at, pa.field("class", typed.type, nullable=False), typed)
    ids = pa.array(range(len(rows)), pa.int64())
    rows = rows.set_column(0, pa.field("community", pa.int64(), nullable=False), ids)
    write(store, rows, "aa11")
    assert same(store.read("prevalence"), rows)
    with pytest.raises(SettingsError, match=r"column 'community' .* to another one"):
        write(store, rows_of("bb22"), "bb22")
    assert same(store.read("prevalence"), rows)


def test_columns_of_a_later_version_are_added(store: Store) -> None:
    old = rows_of("aa11").drop_columns(["cv", "note"])
    write(store, old, "aa11")
    new = rows_of("bb22")
    write(store, new, "bb22")
    stored = store.read("prevalence")
    assert {row["run_id"] for row in stored} == {"aa11", "bb22"}
    assert all(row["note"] is None for row in stored if row["run_id"] == "aa11")
    later = [row for row in stored if row["run_id"] == "bb22"]
    assert [{name: row[name] for name in new.column_names} for row in later] == sorted(
        new.to_pylist(), key=lambda row: (str(row["community"]), str(row["class"]))
    )
    write(
        store,
        old.set_column(
            old.schema.get_field_index("run_id"),
            "run_id",
            pa.array(["cc33"] * len(old)),
        ),
        "cc33",
    )
    assert len(store.read("prevalence")) == 3 * len(old)


def test_two_runs_deliver_side_by_side(store: Store) -> None:
    tables = {f"{n}{n}": rows_of(f"{n}{n}", seed=n) for n in range(4)}
    write(store, rows_of("zz"), "zz")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: write(store, each[1], each[0]), tables.items()))
    assert same(store.read("prevalence"), rows_of("zz"), *tables.values())


def test_a_foreign_table_is_refused_before_the_run_and_left_alone(
    store: Store, tmp_path: Path
) -> None:
    foreign = pa.table({"community": ["a"], "class": ["b"], "price": [2.5]})
    if store.sink == "delta":
        from deltalake import write_deltalake

        write_deltalake(store.target, foreign)
    else:
        import sqlalchemy as sa

        url = store.target.replace("postgresql:", "postgresql+psycopg:")
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.execute(
                sa.text("CREATE TABLE prevalence (community TEXT, class TEXT)")
            )
    with pytest.raises(SettingsError, match=r"no column 'run_id', so it belongs"):
        check_sinks(store.settings())
    with pytest.raises(SettingsError, match=r"no column 'run_id', so it belongs"):
        write(store, rows_of("aa11"), "aa11")
    if store.sink == "sql":  # another name of the table will do
        check_sinks(store.settings("sinks.table=shares"))
        write(store, rows_of("aa11"), "aa11", "shares")
        assert same(store.read("shares"), rows_of("aa11"))


def test_a_store_holds_nulls_for_suppressed_communities(
    store: Store, tmp_path: Path
) -> None:
    """Although the table in the run directory keeps them, marked as suppressed."""
    table = prevalence_table(NAMES, intervals=True)
    quality = np.where(pc.equal(table["community"], NAMES[0]), "suppressed", "caution")
    at = table.schema.get_field_index("quality")
    table = table.set_column(at, "quality", pa.array(quality.tolist()))
    run = write_fake_run(tmp_path / "suppressed", [table])
    report(run, store.settings())
    deliver(run, store.settings())
    rows = read_published(run.location).read("prevalence").to_pylist()
    assert all(row["prevalence"] is not None for row in rows)
    for row in store.read("prevalence"):
        shown = row["community"] != NAMES[0]
        for name in ("prevalence", "lower", "upper", "n_labelled", "flagged"):
            assert (row[name] is not None) == (shown and name != "flagged")
        assert row["n_nodes"] > 0


def test_a_published_run_is_delivered_once(run: RunDirectory, store: Store) -> None:
    settings = store.settings()
    assert undelivered(run, load_settings()) == []
    assert undelivered(run, settings) == [store.sink]
    check_sinks(settings)
    assert deliver(run, settings) == [store.sink]
    version = read_published(run.location)
    assert same(store.read("prevalence"), version.read("prevalence"))
    assert undelivered(run, settings) == []
    assert deliver(run, settings) == []
    assert undelivered(run, store.settings("sinks.table=other")) == [store.sink]
    # A record that is lost or damaged delivers again, without effect.
    run.folder.write_bytes("_sinks.json", b"{")
    assert deliver(run, settings) == [store.sink]
    assert same(store.read("prevalence"), version.read("prevalence"))
    assert "se/cr" not in run.folder.read_bytes("_sinks.json").decode()


def test_a_complete_run_with_a_new_store_only_delivers(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Sources("nodes.parquet", "edges.parquet")
    settings = sql_store(f"sqlite:///{tmp_path}/results.db").settings()
    for module in ("due", "jobs"):
        monkeypatch.setattr(f"xnq_dist.{module}.due_stages", lambda *_: ())
    monkeypatch.setattr("xnq_dist.jobs.check_sources", lambda *_: None)
    monkeypatch.setattr("xnq_dist.jobs.check_inputs", lambda *_: None)
    done = []

    def do(stage: str, work: Callable[[Progress], T]) -> T:
        done.append(stage)
        return work(silent)

    for _ in range(2):
        run_all(sources, run.location, settings, do=do)
    assert done == ["deliver"]
    assert nothing_changed(run.location, sources, settings) is not None
    run.folder.delete("_sinks.json")
    assert nothing_changed(run.location, sources, settings) is None
    assert nothing_changed(run.location, sources, load_settings()) is not None


KILLED = """
import os, signal, sys
import pyarrow.parquet as pq
import sqlalchemy as sa
from xnq_dist.sinks import sql

inserts = []

@sa.event.listens_for(sa.Engine, "after_cursor_execute")
def kill(connection, cursor, statement, *more):
    inserts.append(statement.startswith("INSERT"))
    if sum(inserts) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

sql.ROWS = 1
sql.write(pq.read_table(sys.argv[1]), "bb22", sys.argv[2], "prevalence")
"""


@pytest.mark.parametrize(
    "store",
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.server)],
    indirect=True,
)
def test_a_killed_delivery_leaves_the_database_as_it_was(
    store: Store, tmp_path: Path
) -> None:
    first, second = rows_of("aa11"), rows_of("bb22", seed=1)
    write(store, first, "aa11")
    pq.write_table(second, tmp_path / "rows.parquet")
    file = str(tmp_path / "rows.parquet")
    command = [sys.executable, "-c", KILLED, file, store.target]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert same(store.read("prevalence"), first)
    write(store, second, "bb22")
    assert same(store.read("prevalence"), first, second)


def test_one_commit_a_run_names_the_run(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    found = delta_store(tmp_path / "delta")
    for run_id in ("aa11", "bb22", "aa11", "bb22"):
        write(found, rows_of(run_id), run_id)
    table = DeltaTable(found.target)
    assert table.version() == 1
    assert [entry["run_id"] for entry in table.history()] == ["bb22", "aa11"]
    before = DeltaTable(found.target, version=0).to_pyarrow_table()
    assert set(before["run_id"].to_pylist()) == {"aa11"}


@pytest.mark.server
def test_runs_side_by_side_on_s3_are_one_commit_each(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    from tests.object_store import serving
    from xnq_dist.sinks.delta import _located

    with serving(tmp_path) as s3:
        found = Store("delta", s3.uri("bucket/lake/shares"), lambda _: [])
        check_sinks(found.settings())
        tables = {f"{n}{n}": rows_of(f"{n}{n}", seed=n) for n in range(3)}
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda each: write(found, each[1], each[0]), tables.items()))
        address, options = _located(found.target)
        assert address == "s3://bucket/lake/shares"
        table = DeltaTable(address, storage_options=options)
        assert table.version() == 2
        ids = Counter(table.to_pyarrow_table()["run_id"].to_pylist())
        assert ids == dict.fromkeys(tables, 2 * len(NAMES))


def test_a_database_that_does_not_answer_is_a_warning_first_and_then_an_error(
    run: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = "postgresql://analyst:secret@127.0.0.1:9/results"
    lake = delta_store(tmp_path / "delta")
    settings = lake.settings(f"sinks.sql={dead}")
    check_sinks(settings)
    assert "postgresql://***@127.0.0.1:9/results does not answer" in caplog.text
    with pytest.raises(InfrastructureError, match="run again to deliver") as failed:
        deliver(run, settings)
    assert f"results {read_published(run.location).run_id} are published" in str(
        failed.value
    )
    assert "secret" not in caplog.text + str(failed.value)
    # The other store has them.
    assert undelivered(run, settings) == ["sql"]
    assert len(lake.read("")) == 2 * len(NAMES)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("sinks.sql=results.db", "is not a database's URL: write it like sqlite:///"),
        ("sinks.sql=mysql://host/x", "SQLite and PostgreSQL; choose one of them"),
        ("sinks.sql=postgresql://***@host/x", "give it again with --set sinks.sql="),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(setting: str, words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_sinks(load_settings(overrides=[setting]))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "package"),
    [("sinks.delta=lake", "deltalake"), ("sinks.sql=postgresql://host/x", "psycopg")],
)
def test_a_missing_package_is_named_with_its_extra(
    setting: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xnq_dist.sinks.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=rf"{package}: pip install 'xnq-dist\["):
        check_sinks(load_settings(overrides=[setting]))
