"""Artificial tables of an evaluation, in the registered schemas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core import schemas

TYPES = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}


def table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of a registered schema."""
    columns = schemas.TABLES[name].columns
    kinds = pa.schema([(c.name, TYPES[c.kind]) for c in columns])
    return schemas.conform(pa.Table.from_pylist([*rows], kinds), name, name)


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
    calibration: str = "bcts",
    seconds: float | None = None,
) -> dict[str, Any]:
    """One row of ``results``."""
    return {
        "dataset": dataset,
        "method": method,
        "embedder": method,
        "quantifier": quantifier,
        "calibration": calibration,
        "fold": fold,
        "draw": draw,
        "label_share": share,
        "split": split,
        "metric": metric,
        "value": value,
        "selected": selected,
        "seconds": seconds,
    }


def results(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """A ``results`` table."""
    return table("results", rows)


def evaluation(
    means: Mapping[str, Mapping[str, float]],
    quantifiers: Mapping[str, Sequence[str]] | None = None,
    folds: int = 3,
    shares: Sequence[float] = (1.0,),
    draws: int = 2,
    samples: int = 42,
    seed: int = 0,
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Results, configurations and estimates around given mean AEs.

    Parameters
    ----------
    means
        AE by method and data set.
    quantifiers
        Quantifiers by method; default: SLD only.
    """
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    drawn: list[dict[str, Any]] = []
    estimates: list[dict[str, Any]] = []
    multi = ("cora-multi", "amazon-ratings", "flickr")
    for place, (method, of) in enumerate(means.items()):
        for dataset, mean in of.items():
            classes = ("a", "b", "c") if dataset in multi else ("rest", "2")
            for draw in range(draws):
                for name, value in (("dim", 512 * (draw + 1)), ("C", 0.12345 + draw)):
                    drawn.append(
                        {
                            "dataset": dataset,
                            "method": method,
                            "draw": draw,
                            "parameter": name,
                            "value": json.dumps(value),
                        }
                    )
            for share in shares:
                for fold in range(folds):
                    for rank, q in enumerate((quantifiers or {}).get(method, ("sld",))):
                        level = mean * (1 + 0.3 * rank) * share**-0.3
                        value = level * (1 + 0.1 * random.standard_normal())
                        common = {
                            "dataset": dataset,
                            "method": method,
                            "quantifier": q,
                            "fold": fold,
                            "share": share,
                        }
                        for draw in range(draws):
                            rows += [
                                row(
                                    factor * value * (1 + draw),
                                    metric=metric,
                                    split="validation",
                                    draw=draw,
                                    selected=draw == 0,
                                    seconds=(draw + 1) * 4.0 ** (place - 2) + fold,
                                    **common,
                                )
                                for metric, factor in (("ae", 1.0), ("rae", 12.0))
                            ]
                        rows += [
                            row(value, **common),
                            row(12 * value, metric="rae", **common),
                        ]
                        if share == max(shares):
                            estimates += _estimates(
                                random, classes, samples, level, common
                            )
    return (
        results(rows),
        table("configurations", drawn),
        table("estimates", estimates),
    )


def _estimates(
    random: np.random.Generator,
    classes: Sequence[str],
    samples: int,
    level: float,
    common: Mapping[str, Any],
) -> list[dict[str, Any]]:
    found = []
    for sample in range(samples):
        if len(classes) == 2:
            positive = (sample % 21) / 20
            true = np.array([1 - positive, positive])
            guess = positive + (0.5 - positive) * min(1.0, 3 * level)
            guess = float(np.clip(guess + level * random.standard_normal(), 0, 1))
            estimate = np.array([1 - guess, guess])
        else:
            true = random.dirichlet(np.ones(len(classes)))
            estimate = random.dirichlet(np.ones(len(classes)))
        found += [
            {
                "dataset": common["dataset"],
                "method": common["method"],
                "quantifier": common["quantifier"],
                "fold": common["fold"],
                "label_share": common["share"],
                "sample": sample,
                "class": name,
                "true": float(true[c]),
                "estimate": float(estimate[c]),
            }
            for c, name in enumerate(classes)
        ]
    return found
