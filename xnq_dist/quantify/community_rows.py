"""Rows of the stage's tables: ``prevalence``, ``totals``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats
from xnq_dist.core.schemas import class_column
from xnq_dist.core.settings import Settings
from xnq_dist.quantify.checks import disclosure
from xnq_dist.quantify.checks.quality import noted, qualities, standard_errors
from xnq_dist.quantify.interface import Prevalence

__all__ = [
    "community_ids",
    "label_facts",
    "prevalence_rows",
    "total_rows",
]

SCENARIOS = "if_random", "if_by_class"


def prevalence_rows(
    arrays: dict[str, NDArray[Any]],
    names: pa.Array,
    classes: list[Any],
    method: str,
    settings: Settings,
) -> pa.Table:
    """One row per community and class (schema ``prevalence``).

    `arrays` are the fields of `Prevalence`, and ``suppressed``.
    """
    repeat = np.repeat(np.arange(len(names)), len(classes))
    suppressed = arrays["suppressed"]
    notes = noted(arrays["notes"], arrays["converged"])
    note = disclosure.note(settings.disclosure.min_size)
    notes = np.where(suppressed, note, notes)[repeat]
    return pa.table(
        {
            "community": community_ids(names.take(pa.array(repeat))),
            **_estimate_columns(arrays, classes, settings, suppressed),
            "method": pa.array([method] * len(repeat), pa.string()),
            "note": pa.array(notes, pa.string(), mask=notes == ""),
        }
    )


def total_rows(
    arrays: dict[str, NDArray[Any]],
    classes: list[Any],
    method: str,
    settings: Settings,
    labels: Mapping[str, Any],
) -> pa.Table:
    """One row per class for the complete graph (schema ``totals``), with `labels`."""
    count = len(classes)
    answers = labels["answers"]

    def doubles(values: Sequence[float | None]) -> pa.Array:
        finite = [None if v is None or not np.isfinite(v) else v for v in values]
        return pa.array(finite, pa.float64())

    scenarios = {
        f"{name}{end}": doubles(
            [None if each[name] is None else each[name][at] for each in answers]
        )
        for name in SCENARIOS
        for at, end in enumerate(("", "_lower", "_upper"))
    }
    return pa.table(
        {
            "scope": pa.array(["graph"] * count, pa.string()),
            **_estimate_columns(arrays, classes, settings),
            "method": pa.array([method] * count, pa.string()),
            "drawn": pa.array([labels["drawn"]] * count, pa.string()),
            "verdict": pa.array([labels.get("verdict")] * count, pa.string()),
            "pvalue": doubles([labels.get("pvalue")] * count),
            "bias": doubles([each["bias"] for each in answers]),
            "detectable_factor": doubles([each["detectable"] for each in answers]),
            "weight_by_class": doubles([labels.get("tilted")] * count),
            **scenarios,
        }
    )


def label_facts(
    studied: Mapping[str, Any] | None,
    graph: Mapping[str, Prevalence],
    classes: list[Any],
    settings: Settings,
) -> dict[str, Any]:
    """Facts on how the labelled nodes were chosen and on both estimates, JSON values.

    `studied` is from `learn_from`, None where nothing was learnt; `graph` is from
    `estimate_graph`.
    """
    selection = {"drawn": settings.labels.drawn} if studied is None else studied

    def ends(scenario: str, code: int) -> list[float] | None:
        found = graph.get(scenario)
        if found is None:
            return None
        estimates = found.prevalence, found.lower, found.upper
        values = [float(each[0, code]) for each in estimates]
        return values if np.isfinite(values).all() else None

    bias = selection.get("bias")
    detectable = selection.get("detectable")
    answers = []
    for code, name in enumerate(classes):
        factor = None
        if bias is not None:
            others = [value for at, value in enumerate(bias) if at != code]
            factor = float(np.exp(bias[code] - np.mean(others)))
        answers.append(
            {
                "class": str(name),
                "bias": None if bias is None else bias[code],
                "factor": factor,
                "detectable": None if detectable is None else detectable[code],
                **{name: ends(name, code) for name in ("answer", *SCENARIOS)},
            }
        )
    return {**selection, "answers": answers}


def _estimate_columns(
    arrays: dict[str, NDArray[Any]],
    classes: list[Any],
    settings: Settings,
    suppressed: Bools | None = None,
) -> dict[str, Any]:
    """Columns of sizes, estimates, intervals and quality, by community and class."""
    count = len(arrays["n_nodes"])
    repeat = np.repeat(np.arange(count), len(classes))
    n_nodes = arrays["n_nodes"][repeat]
    ends = arrays["lower"], arrays["upper"]
    sd = standard_errors(arrays["sd"], *ends, settings.intervals.level).reshape(-1)
    quality = qualities(*ends, settings.quality, arrays["converged"], suppressed)
    prevalence, lower, upper = (
        arrays[name].reshape(-1) for name in ("prevalence", "lower", "upper")
    )
    return {
        "class": class_column(classes, count),
        "n_nodes": n_nodes,
        "n_labelled": arrays["n_labelled"][repeat],
        "n_estimated": arrays["n_estimated"][repeat],
        "prevalence": _nullable(prevalence),
        "lower": _nullable(lower),
        "upper": _nullable(upper),
        "se": _nullable(sd),
        "quality": pa.array(quality[repeat], pa.string()),
    }


def _nullable(values: Floats) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def community_ids(names: pa.Array) -> pa.Array:
    """Names as ids of a table: int64 or string."""
    return names if pa.types.is_integer(names.type) else names.cast(pa.string())
