"""Time of complete runs against edges and by stage, measured and drawn.

    python tests/benchmarks/scale.py FOLDER [--nodes 1000 10000 ...] [--out PICTURES]

For each number of nodes: a generated graph (mean degree 10, a tenth of the nodes
labelled) and `xnq-dist run` with default settings, on the clock. ``FOLDER/scale.json``
has the seconds of every stage; sizes in it are not run again. Draws ``time-edges.svg``
and ``time-stages.svg``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

NODES = (1_000, 10_000, 100_000, 1_000_000)
INK, MUTED, MAIN = "#1f2933", "#52606d", "#0b6e99"
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "xnq-dist",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e7eb",
    "legend.frameon": False,
}
REST = "start and the rest"
STAGES = ("graph", "embeddings", "readout", "posteriors", "quantify", REST)
COLORS = ("#9fb3c8", MAIN, "#d9730d", "#f0b478", "#448361", MUTED)


def command(*arguments: str) -> None:
    """Run the command line."""
    words = [sys.executable, "-m", "xnq_dist.app.cli", *arguments]
    subprocess.run(words, check=True, capture_output=True)


def measure(nodes: int, folder: Path) -> dict[str, Any]:
    """Seconds of each stage of one run, and its directed edges."""
    graph, out = folder / f"graph-{nodes}", folder / f"run-{nodes}"
    made = "--labelled", "0.1", "--communities", "50"
    command("generate", "--nodes", str(nodes), *made, "--out", str(graph))
    shutil.rmtree(out, ignore_errors=True)
    names = ("nodes", "edges", "memberships")
    tables = [word for n in names for word in (f"--{n}", f"{graph}/{n}.parquet")]
    began = time.monotonic()
    command("run", *tables, "--out", str(out))
    total = time.monotonic() - began
    seconds = {
        stage: json.loads((out / stage / "_manifest.json").read_text())["seconds"]
        for stage in STAGES[:-1]
    }
    edges = json.loads((out / "plan.json").read_text())["met"]["edges"]
    seconds[REST] = max(0.0, total - sum(seconds.values()))
    shutil.rmtree(out)
    return {"nodes": nodes, "edges": edges, "total": total, "seconds": seconds}


def draw(runs: list[dict[str, Any]], out: Path) -> None:
    """Draw both charts."""
    edges = [run["edges"] for run in runs]
    totals = [run["total"] for run in runs]

    def against_edges(figure: Any) -> None:
        axes = figure.subplots()
        last = totals[-1] / edges[-1]
        line = [edges[-1] / 100, edges[-1]]
        axes.plot(line, [last * e for e in line], ":", color=MUTED)
        below = {"xytext": (10, -2), "textcoords": "offset points"}
        axes.annotate("in proportion", (line[0], last * line[0]), color=MUTED, **below)
        axes.plot(edges, totals, "o-", color=MAIN)
        for at, total in zip(edges, totals, strict=True):
            place = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center"}
            axes.annotate(f"{total:.3g} s", (at, total), color=INK, **place)
        axes.set(xscale="log", yscale="log", xlabel="directed edges", ylabel="seconds")

    def by_stage(figure: Any) -> None:
        axes = figure.subplots()
        names, left = [f"{count:,} edges" for count in edges], [0.0] * len(runs)
        for stage, color in zip(STAGES, COLORS, strict=True):
            shares = [run["seconds"][stage] / run["total"] * 100 for run in runs]
            axes.barh(names, shares, left=left, color=color, label=stage)
            left = [a + b for a, b in zip(left, shares, strict=True)]
        axes.set(xlabel="% of the time", xlim=(0, 100))
        axes.grid(False)
        figure.legend(loc="outside upper center", ncols=3)

    for name, drawn in (("time-edges", against_edges), ("time-stages", by_stage)):
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=(5.2, 3.6), layout="constrained")
            drawn(figure)
            figure.savefig(out / f"{name}.svg", metadata={"Date": None})


def main() -> None:
    """Measure what is missing, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--out", type=Path, help="folder of the charts, else FOLDER")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    file = chosen.folder / "scale.json"
    runs = json.loads(file.read_text()) if file.exists() else []
    for nodes in chosen.nodes:
        if nodes not in [run["nodes"] for run in runs]:
            runs.append(measure(nodes, chosen.folder))
            file.write_text(json.dumps(runs, indent=1) + "\n")
            sys.stdout.write(json.dumps(runs[-1]) + "\n")
    runs.sort(key=lambda run: run["nodes"])
    draw(runs, chosen.out or chosen.folder)


if __name__ == "__main__":
    main()
