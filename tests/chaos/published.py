"""Published values of a run directory, for comparisons."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["differences", "published"]

TABLES = ("prevalence", "totals", "anomalies", "communities", "partitions")
STAGES = ("embeddings", "posteriors")
PER_RUN = ("run_id",)
"""Columns that differ from run to run."""


def published(out: Path) -> dict[str, pa.Table]:
    """Published tables, and the tables of embeddings and posteriors by node.

    Raises
    ------
    pyarrow.ArrowException, OSError
        When one is not there or cannot be read: then it is no answer at all.
    """
    found = {}
    for name in TABLES:
        if name == "prevalence" or (out / f"{name}.parquet").exists():
            found[name] = _comparable(pq.read_table(out / f"{name}.parquet"))
    for name in STAGES:
        files = sorted((out / name).glob("part-*.parquet"))
        if files:
            parts = pa.concat_tables([pq.read_table(file) for file in files])
            found[name] = _comparable(parts).sort_by("node_id")
    return found


def _comparable(table: pa.Table) -> pa.Table:
    kept = [name for name in table.column_names if name not in PER_RUN]
    return table.select(kept).replace_schema_metadata(None)


def differences(expected: dict[str, pa.Table], out: Path) -> list[str]:
    """Tables whose values are not those expected, sorted."""
    try:
        found = published(out)
    except (pa.ArrowException, OSError) as error:
        return [f"unreadable: {error}"]
    return sorted(
        name
        for name in expected.keys() | found.keys()
        if name not in expected
        or name not in found
        or not expected[name].equals(found[name])
    )
