"""The tables of an evaluation in tidy form: results, configurations, estimates."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core import schemas
from xnq_dist.evaluation.keep import arrow_schema
from xnq_dist.evaluation.measures import METRICS
from xnq_dist.evaluation.methods.method_interface import Figure, Task
from xnq_dist.evaluation.on_workers import MethodResult

__all__ = ["configuration_rows", "estimate_rows", "result_rows", "tidy_tables"]


def tidy_tables(task: Task, result: MethodResult) -> dict[str, pa.Table]:
    """All three tables, by the names of their schemas."""
    return {
        "results": result_rows(task, result),
        "configurations": configuration_rows(task, result),
        "estimates": estimate_rows(task, result),
    }


def _table(name: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    table = pa.Table.from_pylist(list(rows), arrow_schema(name))
    return schemas.conform(table, name, f"table {name}")


def result_rows(task: Task, result: MethodResult) -> pa.Table:
    """One row per error, schema ``results``.

    Rows of the split ``test`` exist only for the chosen draws and calibrations.
    """

    def key(one: Figure) -> tuple[int, str, int, str]:
        return one.split, one.quantifier, one.draw, one.calibration

    chosen = {key(figure) for figure in result.test}
    roles = {"validation": result.validation, "test": result.test}
    return _table(
        "results",
        (
            {
                "dataset": task.dataset,
                "method": result.method,
                "embedder": result.embedder,
                "quantifier": one.quantifier,
                "calibration": one.calibration,
                "fold": task.splits[one.split].fold,
                "draw": one.draw,
                "label_share": task.splits[one.split].label_share,
                "split": part,
                "metric": metric,
                "value": one.errors[metric],
                "selected": key(one) in chosen,
                "seconds": result.seconds[one.draw, one.split],
            }
            for part, figures in roles.items()
            for one in figures
            for metric in METRICS
        ),
    )


def configuration_rows(task: Task, result: MethodResult) -> pa.Table:
    """Hyperparameters of every draw, schema ``configurations``."""
    return _table(
        "configurations",
        (
            {
                "dataset": task.dataset,
                "method": result.method,
                "draw": draw,
                "parameter": name,
                "value": json.dumps(value),
            }
            for draw, configuration in enumerate(result.configurations)
            for name, value in (configuration or {"(none)": None}).items()
        ),
    )


def estimate_rows(task: Task, result: MethodResult) -> pa.Table:
    """True and estimated prevalence of every test sample, schema ``estimates``."""
    parts: list[pa.Table] = []
    for figure in result.test:
        samples, classes = figure.true.shape
        split = task.splits[figure.split]
        count = samples * classes
        columns = {
            "dataset": [task.dataset] * count,
            "method": [result.method] * count,
            "quantifier": [figure.quantifier] * count,
            "fold": np.full(count, split.fold, np.int32),
            "label_share": np.full(count, split.label_share),
            "sample": np.repeat(np.arange(samples, dtype=np.int32), classes),
            "class": list(task.classes) * samples,
            "true": figure.true.ravel(),
            "estimate": figure.estimate.ravel(),
        }
        parts.append(pa.table(columns, schema=arrow_schema("estimates")))
    return schemas.conform(pa.concat_tables(parts), "estimates", "table estimates")
