"""Delivery to a table in SQLite or PostgreSQL: one transaction per run."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.redaction import redacted
from xnq_dist.sinks import KEY, refuse_other

__all__ = ["ERRORS", "check", "write"]

log = logging.getLogger(__name__)

ERRORS = (SQLAlchemyError,)
ROWS = 2000
"""Rows that are sent at a time."""
SECONDS = 10
"""Time to wait for a connection."""
TYPES: dict[str, type[sa.types.TypeEngine[Any]]] = {
    "int64": sa.BigInteger,
    "int32": sa.Integer,
    "double": sa.Double,
    "bool": sa.Boolean,
    "string": sa.Text,
}
"""Column types by Arrow type."""


def check(target: str, name: str) -> None:
    """Check the address, and that a table of this name, if any, has rows of runs.

    A database that does not answer is a warning: the run delivers at its end.

    Raises
    ------
    SettingsError
        When the address cannot be used or the table belongs to something else.
    """
    engine = _engine(target)
    try:
        with engine.connect() as connection:
            if known := _columns(connection, name):
                refuse_other(known, {}, f"sinks.table {name}")
    except SQLAlchemyError as error:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        log.warning(
            "sinks.sql %s does not answer (%s); the run goes on and delivers its "
            "results at the end",
            redacted(target),
            redacted(reason),
        )
    finally:
        engine.dispose()


def write(rows: pa.Table, run_id: str, target: str, name: str) -> None:
    """Put the rows of a run into the table in one transaction; create it first.

    Rows of the same run_id are replaced. Columns that the table lacks are added.

    Raises
    ------
    SettingsError
        When the table belongs to something else, or a column has another type.
    """
    engine = _engine(target)
    try:
        with engine.begin() as connection:
            table = _table(connection, rows.schema, name)
            connection.execute(sa.delete(table).where(table.c.run_id == run_id))
            for first in range(0, len(rows), ROWS):
                values = rows.slice(first, ROWS).to_pylist()
                connection.execute(sa.insert(table), values)
    finally:
        engine.dispose()


def _engine(target: str) -> sa.Engine:
    try:
        url = sa.make_url(target)
        kind = url.get_backend_name()
    except ArgumentError as error:
        raise SettingsError(
            f"sinks.sql {target} is not a database's URL: write it like "
            "sqlite:///results.db or postgresql://HOST/DATABASE"
        ) from error
    if kind == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    elif kind != "sqlite":
        raise SettingsError(
            f"sinks.sql {target}: results can be delivered to SQLite and PostgreSQL; "
            "choose one of them, or load the Parquet file"
        )
    waits = {"sqlite": "timeout", "postgresql": "connect_timeout"}
    return sa.create_engine(
        url, poolclass=sa.NullPool, connect_args={waits[kind]: SECONDS}
    )


def _columns(connection: sa.Connection, name: str) -> dict[str, str]:
    """Columns of the table and their types; empty if there is no such table."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(name):
        return {}
    return {each["name"]: _kind(each["type"]) for each in inspector.get_columns(name)}


def _kind(of: sa.types.TypeEngine[Any]) -> str:
    try:
        return of.python_type.__name__
    except NotImplementedError:  # a type that we never write
        return str(of)


def _table(connection: sa.Connection, schema: pa.Schema, name: str) -> sa.Table:
    """The table for rows of this schema; created, or with the columns it lacked."""
    columns = [
        sa.Column(
            field.name,
            TYPES[str(field.type)](),
            primary_key=field.name in KEY,
            autoincrement=False,
        )
        for field in schema
    ]
    table = sa.Table(name, sa.MetaData(), *columns)
    known = _columns(connection, name)
    if not known:
        table.create(connection)
        return table
    kinds = {column.name: _kind(column.type) for column in table.columns}
    refuse_other(known, kinds, f"sinks.table {name}")
    quoted = connection.dialect.identifier_preparer.format_table(table)
    for column in table.columns:
        if column.name not in known:
            text = CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {quoted} ADD COLUMN {text}"))
    return table
