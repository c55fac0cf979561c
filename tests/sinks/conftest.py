"""Stores that published tables are delivered to: Delta Lake, SQLite, PostgreSQL."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.config import load_settings
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.report import report

NAMES = ["north", 'it\'s "so"', "ünïcode <b>"]

POSTGRES = Path("/usr/lib/postgresql/15/bin")


@dataclass(frozen=True)
class Store:
    """A store and how to look into it."""

    sink: str
    target: str
    read: Callable[[str], list[dict[str, object]]]
    """All rows of a table by its name, sorted."""

    def settings(self, *more: str) -> Settings:
        """Settings with this store."""
        return load_settings(overrides=[f"sinks.{self.sink}={self.target}", *more])


def _ordered(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    key = ("run_id", "community", "class")
    return sorted(rows, key=lambda row: [str(row[name]) for name in key])


def delta_store(folder: Path) -> Store:
    """A Delta Lake table in a folder."""
    from deltalake import DeltaTable

    def read(_name: str) -> list[dict[str, object]]:
        return _ordered(DeltaTable(str(folder)).to_pyarrow_table().to_pylist())

    return Store("delta", str(folder), read)


def sql_store(url: str) -> Store:
    """A database."""
    import sqlalchemy as sa

    address = url.replace("postgresql:", "postgresql+psycopg:")

    def read(name: str) -> list[dict[str, object]]:
        engine = sa.create_engine(address, poolclass=sa.NullPool)
        with engine.connect() as connection:
            quoted = f'"{name}"'
            rows = connection.execute(sa.text(f"SELECT * FROM {quoted}")).mappings()  # noqa: S608
            return _ordered([dict(row) for row in rows])

    return Store("sql", url, read)


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A published run without input tables."""
    folder = tmp_path_factory.mktemp("sinks") / "run"
    run = write_fake_run(folder, [prevalence_table(NAMES)])
    report(run, load_settings())
    return run


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """URL of a PostgreSQL server on loopback that asks for a password."""
    if not (POSTGRES / "initdb").exists():
        pytest.skip("PostgreSQL 15 from Debian is not installed")
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="xnq-postgresql-"))
    (folder / "password").write_text("se/cr@t")
    if user:
        for path in (folder, folder / "password"):
            os.chown(path, pwd.getpwnam(user).pw_uid, -1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def ask(program: str, *arguments: str) -> None:
        subprocess.run(
            [str(POSTGRES / program), "-D", str(folder / "data"), *arguments],
            user=user,
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    log = ("-l", str(folder / "log"))
    password = ("--pwfile", str(folder / "password"), "-A", "scram-sha-256")
    ask("initdb", "-U", "analyst", "--no-sync", *password)
    ask("pg_ctl", "-w", "-o", f"-h 127.0.0.1 -p {port} -k {folder} -F", *log, "start")
    try:
        yield f"postgresql://analyst:se%2Fcr%40t@127.0.0.1:{port}/postgres"
    finally:
        ask("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(
    params=["delta", "sqlite", pytest.param("postgresql", marks=pytest.mark.server)]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    if request.param == "delta":
        yield delta_store(tmp_path / "delta")
    elif request.param == "sqlite":
        yield sql_store(f"sqlite:///{tmp_path}/results.db")
    else:
        import sqlalchemy as sa

        found = sql_store(request.getfixturevalue("postgresql"))
        yield found
        engine = sa.create_engine(found.target.replace(":", "+psycopg:", 1))
        with engine.begin() as connection:
            connection.execute(sa.text("DROP SCHEMA public CASCADE"))
            connection.execute(sa.text("CREATE SCHEMA public"))
        engine.dispose()
