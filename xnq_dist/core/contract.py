"""The data contract of published tables, in the Open Data Contract Standard (ODCS)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from xnq_dist._version import __version__
from xnq_dist.core.schemas import RUN_ID, TABLES, Column

__all__ = ["PUBLISHED", "data_contract"]

KEYS = {
    "prevalence": ("community", "class"),
    "totals": ("scope", "class"),
    "anomalies": ("community", "class"),
    "changes": ("community", "class"),
    "history": ("run", "community", "class"),
    "communities": ("node_id",),
    "partitions": ("partition",),
}
"""Columns that, with the run_id, identify a row of a published table."""
PUBLISHED = tuple(KEYS)
"""Published tables, which the contract describes."""
LOGICAL = {
    "int64": "integer",
    "int32": "integer",
    "double": "number",
    "float": "number",
    "bool": "boolean",
    "string": "string",
}
"""Logical types by Arrow type; a kind that differs between runs is text."""
SHARES = {"prevalence", "benchmarked", "pvalue", "qvalue", "fit_pvalue", "if_random"}
"""Columns with values from 0 to 1."""
QUALITY = ["publishable", "caution", "not publishable", "suppressed"]


def data_contract(schemas: Mapping[str, pa.Schema] | None = None) -> dict[str, Any]:
    """The data contract, as the values of an ODCS document.

    Parameters
    ----------
    schemas
        Arrow schemas of the published tables of one run, whose types of communities
        and classes are then named; None: all tables, with types that vary as text.
    """
    names = PUBLISHED if schemas is None else [n for n in PUBLISHED if n in schemas]
    tables = [_table(name, (schemas or {}).get(name)) for name in names]
    return {
        "apiVersion": "v3.1.0",
        "kind": "DataContract",
        "id": "urn:xnq-dist:published-tables",
        "name": "Results of xnq-dist",
        "version": __version__,
        "status": "active",
        "description": {
            "purpose": "Share of each class in every community of a graph, with "
            "confidence intervals and quality flags.",
            "limitations": "Shares are estimates from a sample of labels: read lower, "
            "upper and quality with them.",
            "usage": "Parquet files in the run directory; all files with the same "
            "run_id belong together.",
        },
        "schema": tables,
    }


def _table(name: str, schema: pa.Schema | None) -> dict[str, Any]:
    entry, key = TABLES[name], (*KEYS[name], RUN_ID.name)
    duplicates = {
        "metric": "duplicateValues",
        "arguments": {"properties": list(key)},
        "mustBe": 0,
    }
    return {
        "name": name,
        "physicalName": f"{name}.parquet",
        "physicalType": "file",
        "logicalType": "object",
        "description": f"{entry.meaning[0].upper()}{entry.meaning[1:]}",
        "customProperties": [{"property": "formatVersion", "value": entry.version}],
        "properties": [
            _column(column, key, schema) for column in (*entry.columns, RUN_ID)
        ],
        "quality": [{"type": "library", **duplicates}],
    }


def _column(
    column: Column, key: tuple[str, ...], schema: pa.Schema | None
) -> dict[str, Any]:
    known = schema is not None and column.name in schema.names
    kind = str(schema.field(column.name).type) if known and schema else column.kind
    found: dict[str, Any] = {
        "name": column.name,
        "logicalType": LOGICAL.get(kind, "string"),
        "physicalType": kind,
        "description": column.meaning,
        "required": not column.nullable,
    }
    if column.name in key:
        found |= {"primaryKey": True, "primaryKeyPosition": key.index(column.name) + 1}
    if column.name in SHARES:
        found["logicalTypeOptions"] = {"minimum": 0, "maximum": 1}
    elif column.name.startswith("n_"):
        found["logicalTypeOptions"] = {"minimum": 0}
    checks = []
    if not column.nullable:
        checks.append({"metric": "nullValues", "mustBe": 0})
    if column.name == "quality":
        valid = {"arguments": {"validValues": QUALITY}}
        checks.append({"metric": "invalidValues", **valid, "mustBe": 0})
    if checks:
        found["quality"] = [{"type": "library", **check} for check in checks]
    return found
