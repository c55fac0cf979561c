"""Delivery to a Delta Lake table: one atomic commit per run."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from xnq_dist.sinks import KEY, refuse_other

__all__ = ["ERRORS", "check", "write"]

ERRORS = (DeltaError,)
TRIES = 8
"""Attempts to commit next to other writers."""
TYPES = {
    "int64": "long",
    "int32": "integer",
    "double": "double",
    "bool": "boolean",
    "string": "string",
}
"""Names of Arrow types in Delta Lake."""


def check(target: str, name: str) -> None:
    """Check that a table at the target, if there is one, has rows of runs.

    Raises
    ------
    SettingsError
        When it belongs to something else.
    """
    address, options = _located(target)
    try:
        if DeltaTable.is_deltatable(address, options):
            table = DeltaTable(address, storage_options=options)
            refuse_other(_columns(table), {}, f"sinks.delta {target}")
    except (OSError, *ERRORS):
        return  # the delivery at the run's end reports what is wrong


def write(rows: pa.Table, run_id: str, target: str, name: str) -> None:
    """Merge the rows of a run into the table in one commit; create the table first.

    Rows with the same community, class and run_id are replaced. Columns that the table
    lacks are added.

    Raises
    ------
    SettingsError
        When the table belongs to something else, or a column has another type.
    """
    for left in reversed(range(TRIES)):
        try:
            return _commit(rows, run_id, target)
        except DeltaError as error:
            # Another writer created the table or committed first: read it again.
            raced = isinstance(error, CommitFailedError) or "exists" in str(error)
            if not left or not raced:
                raise
    return None


def _commit(rows: pa.Table, run_id: str, target: str) -> None:
    address, options = _located(target)
    writer = f"xnq-dist/{run_id}"
    committed = CommitProperties(
        custom_metadata={"run_id": run_id}, app_transactions=[Transaction(writer, 1)]
    )
    if not DeltaTable.is_deltatable(address, options):
        write_deltalake(
            address,
            rows,
            mode="error",
            storage_options=options,
            commit_properties=committed,
        )
        return
    table = DeltaTable(address, storage_options=options)
    kinds = {field.name: TYPES[str(field.type)] for field in rows.schema}
    refuse_other(_columns(table), kinds, f"sinks.delta {target}")
    if table.transaction_version(writer) is not None:
        return  # committed by a run that ended before it was recorded
    same = " and ".join(f't."{name}" = s."{name}"' for name in KEY)
    (
        table.merge(
            rows,
            # With the literal, files of other runs are not read.
            f"t.\"run_id\" = '{run_id}' and {same}",
            source_alias="s",
            target_alias="t",
            merge_schema=True,
            commit_properties=committed,
        )
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )


def _columns(table: DeltaTable) -> dict[str, str]:
    fields = table.schema().fields
    return {field.name: getattr(field.type, "type", "") for field in fields}


def _located(target: str) -> tuple[str, dict[str, str]]:
    """A table's address and the options of its store, from a path or URI.

    Credentials, region and endpoint of an ``s3://`` URI are those that pyarrow takes.
    """
    if "://" not in target:
        return str(Path(target).expanduser().absolute()), {}
    uri = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(uri.query).items()}
    options = {
        "AWS_ACCESS_KEY_ID": unquote(uri.username or ""),
        "AWS_SECRET_ACCESS_KEY": unquote(uri.password or ""),
        "AWS_REGION": query.get("region", ""),
    }
    if endpoint := query.get("endpoint_override"):
        scheme = query.get("scheme", "https")
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{endpoint.split('://')[-1]}"
        options["AWS_ALLOW_HTTP"] = str(scheme == "http").lower()
    address = uri._replace(netloc=uri.netloc.rpartition("@")[2], query="").geturl()
    return address, {name: value for name, value in options.items() if value}
