"""Answers as rows of the table ``prevalence``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xnq_dist.quantify.interface import Prevalence

__all__ = ["answer_arrays", "prevalence_rows"]


def answer_arrays(answer: Prevalence) -> dict[str, NDArray[Any]]:
    """An answer as arrays for an npz file; no note is an empty text."""
    return {
        "n_nodes": answer.n_nodes,
        "n_labelled": answer.n_labelled,
        "n_estimated": answer.n_estimated,
        "known": answer.known,
        "prevalence": answer.prevalence,
        "lower": answer.lower,
        "upper": answer.upper,
        "iterations": answer.iterations,
        "converged": answer.converged,
        "notes": np.array([note or "" for note in answer.notes], dtype=np.str_),
    }


def prevalence_rows(
    arrays: dict[str, NDArray[Any]], names: pa.Array, classes: list[Any], method: str
) -> pa.Table:
    """One row per community and class (schema ``prevalence``).

    Parameters
    ----------
    arrays
        Of `answer_arrays`, for S communities; and ``fit_pvalue`` (NaN: no check) and
        ``flagged``, shape (S,).
    names
        The communities' names, S values.
    classes
        The C classes.
    method
        Name of the quantifier.
    """
    n_classes, count = len(classes), len(names) * len(classes)
    repeat = np.repeat(np.arange(len(names)), n_classes)
    community = names.take(pa.array(repeat))
    if not pa.types.is_integer(community.type):
        community = community.cast(pa.string())

    def values(name: str) -> pa.Array:
        flat = arrays[name].reshape(-1)
        return pa.array(flat, mask=np.isnan(flat))

    notes = arrays["notes"][repeat]
    pvalue = arrays["fit_pvalue"][repeat]
    return pa.table(
        {
            "community": community,
            "class": pa.array(
                [str(name) for name in classes] * len(names), pa.string()
            ),
            "n_nodes": arrays["n_nodes"][repeat],
            "n_labelled": arrays["n_labelled"][repeat],
            "n_estimated": arrays["n_estimated"][repeat],
            "prevalence": values("prevalence"),
            "lower": values("lower"),
            "upper": values("upper"),
            "method": pa.array([method] * count, pa.string()),
            "iterations": arrays["iterations"][repeat],
            "converged": arrays["converged"][repeat],
            "fit_pvalue": pa.array(pvalue, mask=np.isnan(pvalue)),
            "flagged": pa.array(arrays["flagged"][repeat], mask=np.isnan(pvalue)),
            "note": pa.array(notes, pa.string(), mask=notes == ""),
        }
    )
