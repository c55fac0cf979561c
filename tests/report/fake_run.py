"""A run directory with artificial stages, for tests of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.schemas import class_column
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.steps import anomalies, history
from xnq_dist.steps.results import Results

NASTY = (
    "<script>alert(1)</script>",
    "R&B \"live\" 'show'",
    "$x_1$ and $\\frac{1}{2}$",
    "_hidden",
    "line\nbreak\tand \x07bell",
    "日本語 ページ 🙂",
    "a very long name that goes on and on and on, and then on for some more words " * 3,
)


def prevalence_table(
    names: Sequence[str] | np.ndarray,
    classes: Sequence[Any] = ("person", "bot"),
    intervals: bool = False,
    seed: int = 0,
) -> pa.Table:
    """Rows of artificial prevalences, one per community and class."""
    rng = np.random.default_rng(seed)
    count, width = len(names), len(classes)
    share = rng.dirichlet(np.full(width, 0.6), size=count)
    size = np.maximum((20 * (1 - rng.random(count)) ** -0.8).astype(np.int64), 1)
    labelled = size // 10
    rows = count * width
    missing = np.zeros(rows, bool) if intervals else np.ones(rows, bool)
    half = 1.96 * np.sqrt(share * (1 - share) / size[:, None])
    return pa.table(
        {
            "community": pa.array(names).take(
                pa.array(np.repeat(np.arange(count), width))
            ),
            "class": class_column(classes, count),
            "n_nodes": np.repeat(size, width),
            "n_labelled": np.repeat(labelled, width),
            "n_estimated": np.repeat(size - labelled, width),
            "prevalence": share.ravel(),
            "lower": pa.array(np.clip(share - half, 0, 1).ravel(), mask=missing),
            "upper": pa.array(np.clip(share + half, 0, 1).ravel(), mask=missing),
            "se": pa.array((half / 1.96).ravel(), mask=missing),
            "quality": pa.array(["caution"] * rows, pa.string(), mask=missing),
            "method": pa.array(["sld"] * rows),
            "note": pa.nulls(rows, pa.string()),
        }
    )


LABEL_FIGURES = (
    *("pvalue", "bias", "detectable_factor", "weight_by_class"),
    *(
        f"if_{name}{end}"
        for name in ("random", "by_class")
        for end in ("", "_lower", "_upper")
    ),
)


def stages_of(**facts: dict[str, Any]) -> dict[str, Manifest]:
    """Stages with these facts, and one that read the graph."""
    graph = {"n_nodes": 100, "counts": {"duplicates_dropped": 17}}
    return {
        name: Manifest(
            *(name, "", "", {}, (), values, 2.0, "2026-01-02T03:04:05+00:00"),
            versions={"numpy": "2"},
        )
        for name, values in {"graph": graph, **facts}.items()
    }


def facts_of(classes: Sequence[str], settings: Settings) -> dict[str, Any]:
    """Facts of a version, made at the beginning of 2026."""
    facts = {"source": "given", "detected": "", "created": "2026-01-01"}
    series = history.series_of(settings, facts, list(classes))
    return {**facts, "series": series}


def earlier_of(table: pa.Table, settings: Settings | None = None) -> Any:
    """Earlier results with this table of prevalences, in place of a version."""
    classes = list(map(str, pc.unique(table["class"]).to_pylist()))
    facts = facts_of(classes, settings or Settings())
    manifest = SimpleNamespace(facts=facts)
    return SimpleNamespace(manifest=manifest, read=lambda name: table)


def results_of(
    table: pa.Table,
    settings: Settings | None = None,
    totals: pa.Table | None = None,
    earlier: Any = None,
    **facts: dict[str, Any],
) -> Results:
    """Results of a table of prevalences, compared with the rest; facts by stage."""
    tables = {"prevalence": table, **({} if totals is None else {"totals": totals})}
    nowhere = RunDirectory("/nothing-is-published-here")
    stages = stages_of(**facts)
    chosen = settings or Settings()
    made = Results(tables, chosen, nowhere, stages, earlier=earlier)
    made.facts |= facts_of(made.view.classes, chosen)
    for name, value in (anomalies.make(made) | history.make(made)).items():
        (tables if isinstance(value, pa.Table) else made.facts)[name] = value
    return made


def totals_table(classes: Sequence[str] = ("person", "bot")) -> pa.Table:
    """Rows for all nodes together, one per class."""
    width = len(classes)
    share = np.full(width, 1 / width)
    return pa.table(
        {
            "scope": ["graph"] * width,
            "class": list(classes),
            "n_nodes": np.full(width, 4000),
            "n_labelled": np.full(width, 600),
            "n_estimated": np.full(width, 3400),
            "prevalence": share,
            "lower": share - 0.02,
            "upper": share + 0.02,
            "se": np.full(width, 0.01),
            "quality": ["publishable"] * width,
            "method": ["auto"] * width,
            "drawn": ["unknown"] * width,
            "verdict": pa.nulls(width, pa.string()),
            **{name: pa.nulls(width, pa.float64()) for name in LABEL_FIGURES},
        }
    )


def write_fake_run(
    folder: Path,
    tables: Sequence[pa.Table],
    classes: Sequence[Any] = ("person", "bot"),
    detected: pa.Table | None = None,
    leave_out: str = "",
    source: str = "given",
) -> RunDirectory:
    """Write stages as the pipeline does, without the stage `leave_out`."""
    run = RunDirectory(folder)
    graph = {
        "n_nodes": 4000,
        "n_edges": 48012,
        "n_features": 16,
        "rho": 31.4159,
        "partitions": 4,
        "partitioner": "metis",
        "owned": [1000, 990, 1010, 1000],
        "halo": [700, 800, 650, 720],
        "edges": [12000, 12012, 11990, 12010],
        "counts": {"edges_read": 24006, "self_loops": 2, "duplicates_dropped": 17},
    }
    bins = np.linspace(0.05, 0.95, 10)
    labels = {
        "classes": list(classes),
        "class_counts": [500, 100, 90, 80, 70, 60, 50, 40, 30, 20][: len(classes)],
        "n_labelled": 600,
    }
    curve = {
        "predicted": [*bins.tolist(), None],
        "observed": [*np.clip(bins + 0.04 * np.sin(9 * bins), 0, 1).tolist(), None],
        "count": [200, 120, 80, 50, 40, 30, 30, 20, 20, 10, 0],
    }
    readout = {
        "C": 1.0,
        "calibration": "bcts",
        "prior": [0.8, 0.2],
        "log_loss": 0.41,
        "skill": {"value": 0.31, "lower": 0.27, "upper": 0.35},
        "reliability": [curve] * len(classes),
    }
    facts = {
        "graph": graph,
        "labels": labels,
        "embeddings": {"dim": 128, "supersteps": 30, "matrix": "dense"},
        "readout": readout,
        "posteriors": {},
        "quantify": {
            "n_communities": 48,
            "n_memberships": 5120,
            "source": source,
            "detected": "" if detected is None else str(detected["community"]),
            "quantifier": "sld",
            "unknown_dropped": 3,
        },
    }
    for name, values in facts.items():
        if name == leave_out:
            continue
        stage = run.stage(name)
        attempt = stage.begin()
        files = []
        if name == "quantify":
            table = pa.concat_tables(tables)
            files.append(attempt.write_table("prevalence", table, "prevalence"))
            totals = totals_table(classes)
            files.append(attempt.write_table("totals", totals, "totals"))
            if detected is not None:
                record = attempt.write_table("communities", detected, "communities")
                files.append(record)
        inputs = {"communities": source} if name == "quantify" else {}
        attempt.commit(files, inputs, values)
    return run
