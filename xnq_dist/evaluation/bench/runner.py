"""Runs benchmarks by name, writes their rows and compares ratios with recorded ones."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core import schemas
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.store import Folder
from xnq_dist.evaluation.bench.harness import Bench, Benchmark, Measurement, Ratio, Size
from xnq_dist.evaluation.bench.machine import machine_facts
from xnq_dist.evaluation.keep import arrow_schema
from xnq_dist.evaluation.rendered_table import aligned

__all__ = ["BENCHMARKS", "WORSE", "Report", "compare", "read_record", "run_benchmarks"]

WORSE = 0.25
"""Relative change from which a ratio counts as slower than the recorded one."""
RECORD_VERSION = 1

BENCHMARKS = {
    name: Benchmark(name, title, f"xnq_dist.evaluation.bench.{function}")
    for name, title, function in (
        ("sld", "SLD over many communities, and QuaPy", "sld_speed:sld"),
        ("ingest", "generate, then ingest a graph", "ingest:ingest"),
        ("plan", "plan compared with runs", "pipeline_runs:plan_benchmark"),
        ("scale", "runs, cost per edge at two sizes", "pipeline_runs:scale"),
        ("products", "dense products, and BLAS", "product_price:products"),
        ("readout", "logistic readout of many rows", "logistic_fits:readout"),
    )
}
"""Benchmarks of the library by name."""


@dataclass
class Report:
    """Results of `run_benchmarks`."""

    size: Size
    machine: dict[str, Any]
    rows: list[Measurement] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)

    def table(self) -> pa.Table:
        """Rows as a table, schema ``benchmarks``; its metadata has machine facts."""
        rows = [{**asdict(row), "size": self.size} for row in self.rows]
        metadata = {b"machine": json.dumps(self.machine).encode()}
        schema = arrow_schema("benchmarks").with_metadata(metadata)
        return pa.Table.from_pylist(rows, schema=schema)

    def record(self) -> dict[str, Any]:
        """Ratios and machine facts, in the format that `read_record` reads."""
        return {
            "version": RECORD_VERSION,
            "size": self.size,
            "machine": self.machine,
            "ratios": [
                {**asdict(ratio), "met": ratio.met, "size": self.size}
                for ratio in self.ratios
            ],
        }

    def text(self) -> str:
        """Medians of the rows, and the ratios, as text."""
        lines = []
        for benchmark in dict.fromkeys(row.benchmark for row in self.rows):
            lines += ["", f"{benchmark} ({self.size})"]
            cells = [("case", "quantity", "what", "median", "spread", "n")]
            rows = [row for row in self.rows if row.benchmark == benchmark]
            keys = dict.fromkeys((r.case, r.quantity, r.what, r.unit) for r in rows)
            notes: dict[str, None] = {}
            for key in keys:
                same = [r for r in rows if (r.case, r.quantity, r.what, r.unit) == key]
                values = np.array([row.value for row in same])
                spread = (values.max() - values.min()) / max(
                    abs(np.median(values)), 1e-300
                )
                shown = f"{_figure(float(np.median(values)))} {key[3]}".strip()
                percent = f"{100 * spread:.0f} %" if len(values) > 1 else ""
                cells.append((*key[:3], shown, percent, str(len(values))))
                notes |= {row.note: None for row in same if row.note}
            lines += [f"  {line}" for line in aligned(cells, "llllll")]
            lines += [f"  ({note})" for note in notes]
            for ratio in self.ratios:
                if ratio.benchmark == benchmark:
                    lines.append(f"  {_ratio_text(ratio)}")
        return "\n".join(lines).lstrip("\n")


def run_benchmarks(
    names: Sequence[str],
    size: Size = "small",
    repeat: int = 3,
    out: str | None = None,
    more: Mapping[str, Benchmark] | None = None,
) -> Report:
    """Run benchmarks and write ``benchmarks.parquet`` and ``benchmarks.json``.

    Parameters
    ----------
    names
        Names in `BENCHMARKS` or `more`; empty: all.
    size
        ``small`` takes seconds and tests the benchmark; report results of ``full``.
    repeat
        Repeats of each measurement.
    out
        Folder for the tables; None: nothing is written.
    more
        Benchmarks from outside the library, by name.

    Raises
    ------
    SettingsError
        For an unknown name, size or number of repeats.
    """
    known = {**BENCHMARKS, **(more or {})}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SettingsError(
            f"there is no benchmark {unknown[0]!r}: choose from {', '.join(known)}"
        )
    if size not in ("small", "full"):
        raise SettingsError(f"--size {size!r} is unknown: choose small or full")
    if repeat < 1:
        raise SettingsError(f"--repeat {repeat} must be at least 1")
    report = Report(size, machine_facts())
    for name in dict.fromkeys(names or known):
        with tempfile.TemporaryDirectory(prefix="xnq-bench-") as folder:
            bench = Bench(name, size, repeat, Path(folder))
            known[name].load()(bench)
        report.rows += bench.rows
        report.ratios += bench.ratios
    if out is not None:
        _write(report, out)
    return report


def _write(report: Report, out: str) -> None:
    import pyarrow.parquet as pq

    folder = Folder.of(out)
    folder.create()
    table = schemas.conform(report.table(), "benchmarks", folder.uri)
    with folder.open_output("benchmarks.parquet") as sink:
        pq.write_table(table, pa.PythonFile(sink, mode="w"))
    text = json.dumps(report.record(), indent=1)
    folder.write_bytes("benchmarks.json", text.encode())


def read_record(path: str | Path) -> dict[str, Any]:
    """Read recorded ratios from the ``benchmarks.json`` of an earlier run.

    Raises
    ------
    InputError
        When the file cannot be read or is not a record of benchmarks.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"the record {path} cannot be read ({error}): give the benchmarks.json of "
            "an earlier --out"
        ) from error
    keys = {"benchmark", "name", "value", "better", "size"}
    ratios = record.get("ratios") if isinstance(record, dict) else None
    if not isinstance(ratios, list) or not all(
        isinstance(ratio, dict) and keys <= set(ratio) for ratio in ratios
    ):
        raise InputError(
            f"{path} is not a record of benchmarks: give the benchmarks.json of an "
            "earlier --out"
        )
    return dict(record)


def compare(report: Report, record: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Compare ratios with recorded ones.

    Returns
    -------
    slower
        A sentence for each ratio that is worse by more than `WORSE`.
    unmatched
        A sentence for each ratio without a counterpart.
    """
    before = {
        (ratio["benchmark"], ratio["name"]): ratio
        for ratio in record["ratios"]
        if ratio["size"] == report.size
    }
    slower, unmatched = [], []
    for ratio in report.ratios:
        name = f"{ratio.benchmark}: {ratio.name}"
        old = before.get((ratio.benchmark, ratio.name))
        if old is None:
            unmatched.append(f"{name} ({report.size}) has no recorded value")
            continue
        was, now = float(old["value"]), ratio.value
        worse = was / now if ratio.better == "more" else now / was
        if not worse <= 1 + WORSE:  # also if NaN
            slower.append(
                f"{name} got slower: {_figure(now)}, recorded {_figure(was)} "
                f"({worse:.2f} times worse)"
            )
    ran = {row.benchmark for row in report.rows} | {r.benchmark for r in report.ratios}
    measured = {(ratio.benchmark, ratio.name) for ratio in report.ratios}
    unmatched += [
        f"{benchmark}: {name} ({report.size}) was recorded and is not measured now"
        for benchmark, name in before
        if benchmark in ran and (benchmark, name) not in measured
    ]
    return slower, unmatched


def _figure(value: float) -> str:
    if value == 0 or 0.001 <= abs(value) < 1e7:
        digits = max(0, 3 - len(str(int(abs(value))))) if abs(value) >= 1 else 4
        return f"{value:,.{digits}f}"
    return f"{value:.3g}"


def _ratio_text(ratio: Ratio) -> str:
    text = f"{ratio.name}: {_figure(ratio.value)}"
    if ratio.aim is not None:
        bound = "at least" if ratio.better == "more" else "at most"
        verdict = "met" if ratio.met else "missed"
        text += f" (goal: {bound} {_figure(ratio.aim)}; {verdict})"
    return text
