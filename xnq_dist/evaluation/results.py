"""The tidy tables of an evaluation: results, configurations, estimates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core import schemas
from xnq_dist.evaluation.measures import METRICS
from xnq_dist.evaluation.methods.method_interface import Task
from xnq_dist.evaluation.on_workers import MethodResult

__all__ = ["configuration_rows", "estimate_rows", "result_rows"]

_TYPES = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
_TYPES |= {"double": pa.float64(), "bool": pa.bool_()}


def _table(name: str, columns: dict[str, Any]) -> pa.Table:
    kinds = {
        column.name: _TYPES[column.kind] for column in schemas.TABLES[name].columns
    }
    arrays = {name: pa.array(values, kinds[name]) for name, values in columns.items()}
    return schemas.conform(pa.table(arrays), name, f"table {name}")


def result_rows(task: Task, result: MethodResult) -> pa.Table:
    """One row per figure, schema ``results``.

    The rows of split ``test`` are of the chosen draws and calibrations alone.
    """
    chosen = {
        (f.choice.split, f.choice.quantifier, f.choice.draw, f.choice.calibration)
        for f in result.test
    }
    rows: list[tuple[str, int, int, str, str, dict[str, float], bool]] = [
        (
            "validation",
            figure.draw,
            figure.split,
            figure.quantifier,
            figure.calibration,
            figure.errors,
            (figure.split, figure.quantifier, figure.draw, figure.calibration)
            in chosen,
        )
        for figure in result.validation
    ]
    rows += [
        (
            "test",
            figure.choice.draw,
            figure.choice.split,
            figure.choice.quantifier,
            figure.choice.calibration,
            figure.errors,
            True,
        )
        for figure in result.test
    ]
    columns: dict[str, list[Any]] = {
        column.name: [] for column in schemas.TABLES["results"].columns
    }
    for part, draw, split, quantifier, calibration, errors, selected in rows:
        for metric in METRICS:
            values = {
                "dataset": task.dataset,
                "method": result.method,
                "embedder": result.embedder,
                "quantifier": quantifier,
                "calibration": calibration,
                "fold": task.splits[split].fold,
                "draw": draw,
                "label_share": task.splits[split].label_share,
                "split": part,
                "metric": metric,
                "value": errors[metric],
                "selected": selected,
                "seconds": result.seconds[draw, split],
                "peak_memory": result.peaks[draw, split],
            }
            for name, value in values.items():
                columns[name].append(value)
    return _table("results", columns)


def configuration_rows(task: Task, result: MethodResult) -> pa.Table:
    """Hyperparameters of every draw, schema ``configurations``."""
    rows = [
        (draw, name, json.dumps(value))
        for draw, configuration in enumerate(result.configurations)
        for name, value in (configuration or {"(none)": None}).items()
    ]
    draws, names, values = (list(column) for column in zip(*rows, strict=True))
    columns = {
        "dataset": [task.dataset] * len(rows),
        "method": [result.method] * len(rows),
        "draw": draws,
        "parameter": names,
        "value": values,
    }
    return _table("configurations", columns)


def estimate_rows(task: Task, result: MethodResult) -> pa.Table:
    """Every test sample's true and estimated prevalence, schema ``estimates``."""
    parts: list[pa.Table] = []
    for figure in result.test:
        samples, classes = figure.true.shape
        split = task.splits[figure.choice.split]
        count = samples * classes
        columns = {
            "dataset": [task.dataset] * count,
            "method": [result.method] * count,
            "quantifier": [figure.choice.quantifier] * count,
            "fold": np.full(count, split.fold, np.int32),
            "label_share": np.full(count, split.label_share),
            "sample": np.repeat(np.arange(samples, dtype=np.int32), classes),
            "class": list(task.classes) * samples,
            "true": figure.true.ravel(),
            "estimate": figure.estimate.ravel(),
        }
        parts.append(_table("estimates", columns))
    return pa.concat_tables(_one_schema(parts))


def _one_schema(tables: Sequence[pa.Table]) -> list[pa.Table]:
    return [
        table.replace_schema_metadata(tables[0].schema.metadata) for table in tables
    ]
