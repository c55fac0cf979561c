"""Rows of the stage's tables: ``prevalence``, ``totals``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.core.schemas import class_column
from xnq_dist.quantify.batches import BatchJob
from xnq_dist.quantify.checks.quality import qualities, standard_errors
from xnq_dist.quantify.interface import Prevalence

__all__ = [
    "community_ids",
    "label_facts",
    "prevalence_rows",
    "total_rows",
]

SCENARIOS = "if_random", "if_by_class"


def prevalence_rows(
    job: BatchJob, arrays: dict[str, NDArray[Any]], names: pa.Array
) -> pa.Table:
    """One row per community and class (schema ``prevalence``).

    `arrays` are the fields of `Prevalence`, and ``suppressed``.
    """
    repeat = np.repeat(np.arange(len(names)), len(job.classes))
    note = f"suppressed: fewer than {job.settings.disclosure.min_size} members"
    notes = np.where(arrays["suppressed"], note, arrays["notes"])[repeat]
    return pa.table(
        {
            "community": community_ids(names.take(pa.array(repeat))),
            **_estimate_columns(job, arrays),
            "note": pa.array(notes, pa.string(), mask=notes == ""),
        }
    )


def total_rows(job: BatchJob, graph: Prevalence, labels: Mapping[str, Any]) -> pa.Table:
    """One row per class for the complete graph (schema ``totals``), with `labels`."""
    arrays = vars(graph) | {"suppressed": np.zeros(1, np.bool_)}
    ends = "", "_lower", "_upper"
    rows = [
        {
            "scope": "graph",
            "drawn": labels["drawn"],
            "verdict": labels.get("verdict"),
            "pvalue": labels.get("pvalue"),
            "bias": answer["bias"],
            "detectable_factor": answer["detectable"],
            "weight_by_class": labels.get("tilted"),
            **{
                f"{name}{end}": answer[name] and answer[name][at]
                for name in SCENARIOS
                for at, end in enumerate(ends)
            },
        }
        for answer in labels["answers"]
    ]
    texts = dict.fromkeys(("scope", "drawn", "verdict"), pa.string())
    kinds = dict.fromkeys(rows[0], pa.float64()) | texts
    chosen = pa.Table.from_pylist(rows, pa.schema(kinds))
    estimates = _estimate_columns(job, arrays)
    return pa.table(estimates | {name: chosen[name] for name in kinds})


def label_facts(
    job: BatchJob, studied: Mapping[str, Any] | None, graph: Mapping[str, Prevalence]
) -> dict[str, Any]:
    """Facts on how the labelled nodes were chosen and on both estimates, JSON values.

    `studied` is from `learn_from`, None where nothing was learnt; `graph` is from
    `estimate_graph`.
    """
    selection = studied or {"drawn": job.settings.labels.drawn}
    bias, detectable = selection.get("bias"), selection.get("detectable")
    answers = []
    for code, name in enumerate(job.classes):
        answer: dict[str, Any] = dict.fromkeys(("bias", "factor", *SCENARIOS))
        answer["class"] = str(name)
        answer["detectable"] = detectable and detectable[code]
        if bias is not None:
            answer["bias"] = bias[code]
            others = np.mean(np.delete(bias, code))
            answer["factor"] = float(np.exp(bias[code] - others))
        for scenario, found in graph.items():
            estimates = found.prevalence, found.lower, found.upper
            ends = [float(each[0, code]) for each in estimates]
            answer[scenario] = ends if np.isfinite(ends).all() else None
        answers.append(answer)
    return {**selection, "answers": answers}


def _estimate_columns(job: BatchJob, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Columns of sizes, estimates, intervals and quality, by community and class."""
    settings, ends = job.settings, (arrays["lower"], arrays["upper"])
    se = standard_errors(arrays["sd"], *ends, settings.intervals.level)
    shares = {**arrays, "se": se}
    judged = arrays["converged"], arrays["suppressed"]
    quality = qualities(*ends, settings.quality, *judged)
    times = len(job.classes)
    return {
        "class": class_column(job.classes, len(quality)),
        **{
            name: np.repeat(arrays[name], times)
            for name in ("n_nodes", "n_labelled", "n_estimated")
        },
        # NaN becomes null.
        **{
            name: pa.array(shares[name].reshape(-1), from_pandas=True)
            for name in ("prevalence", "lower", "upper", "se")
        },
        "quality": pa.array(np.repeat(quality, times), pa.string()),
        "method": pa.array([job.method] * len(quality) * times, pa.string()),
    }


def community_ids(names: pa.Array) -> pa.Array:
    """Names as ids of a table: int64 or string."""
    return names if pa.types.is_integer(names.type) else names.cast(pa.string())
