"""Artificial tables of an evaluation, in the registered schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from xnq_dist.core import schemas
from xnq_dist.evaluation.keep import arrow_schema


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of a registered schema."""
    made = pa.Table.from_pylist([*rows], arrow_schema(name))
    return schemas.conform(made, name, name)


def row(
    value: float,
    *,
    dataset: str = "cora-2",
    method: str = "xnq",
    quantifier: str = "sld",
    fold: int = 0,
    draw: int = 0,
    share: float = 1.0,
    split: str = "test",
    metric: str = "ae",
    selected: bool = True,
) -> dict[str, Any]:
    """One row of ``results``."""
    return {
        "dataset": dataset,
        "method": method,
        "embedder": method,
        "quantifier": quantifier,
        "calibration": "bcts",
        "fold": fold,
        "draw": draw,
        "label_share": share,
        "split": split,
        "metric": metric,
        "value": value,
        "selected": selected,
        "seconds": None,
    }


def both(value: float, **other: Any) -> list[dict[str, Any]]:
    """The same error on validation and test samples."""
    return [row(value, split=split, **other) for split in ("validation", "test")]


def results(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """A ``results`` table."""
    return table("results", rows)


def estimates(guesses: Iterable[Mapping[str, Any]]) -> pa.Table:
    """An ``estimates`` table of one sample each, whose true share of class 1 is .5.

    Every guess has ``estimate``, that of class 1, and values of other columns.
    """
    common = {"dataset": "cora-2", "method": "lr", "quantifier": "sld", "fold": 0}
    common |= {"label_share": 1.0, "sample": 0, "true": 0.5}
    rows = []
    for guess in guesses:
        for name, share in (("0", 1 - guess["estimate"]), ("1", guess["estimate"])):
            rows.append(common | guess | {"class": name, "estimate": share})
    return table("estimates", rows)
