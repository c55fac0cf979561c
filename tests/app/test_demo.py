"""The demo: its comparison with the truth, its output, and its tables in Python."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from tests.app.commands import executed
from xnq_dist import load_demo
from xnq_dist.app import demo

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/tutorial.md")


def command(folder: Path, *words: str) -> SimpleNamespace:
    done = executed(*words, cwd=folder, check=True)
    return SimpleNamespace(out=done.stdout.splitlines(), err=done.stderr.splitlines())


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("demo")
    return SimpleNamespace(folder=folder, **vars(command(folder, "demo")))


def rows(lines: list[str]) -> list[str]:
    """Lines of the comparison with the truth."""
    names = (demo.RUN, demo.PLAIN, demo.LABELLED)
    return [line for line in lines if line.startswith(names)]


def test_it_ends_with_the_answer_and_a_comparison(shown: SimpleNamespace) -> None:
    assert any(line.startswith("All users: 22 % bots (95 %") for line in shown.out)
    assert len(rows(shown.out)) == 3
    assert len([*shown.out, *shown.err]) <= 40
    logged = [line for line in shown.err if line[2:3] == ":"]
    assert 5 <= len(logged) <= 25


@pytest.mark.parametrize("page", PAGES)
def test_pages_show_the_comparison_of_the_command(
    shown: SimpleNamespace, page: str
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for line in rows(shown.out):
        assert line in text


def test_the_tutorial_quotes_the_answer(shown: SimpleNamespace) -> None:
    first = next(at for at, line in enumerate(shown.out) if line.startswith("All "))
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    assert "\n".join(shown.out[first : first + 4]) in text


def test_json_has_error_and_coverage(shown: SimpleNamespace) -> None:
    again = command(shown.folder, "demo", "--json")
    compared = json.loads(again.out[-1])["compared"]
    run, plain = compared[demo.RUN], compared[demo.PLAIN]
    assert run["error"] < plain["error"] < compared[demo.LABELLED]["error"]
    assert run["covered"] > plain["covered"]
    assert compared[demo.LABELLED]["covered"] is None


def test_the_tables_in_python_are_those_of_the_command(shown: SimpleNamespace) -> None:
    for name, table in zip(("nodes", "edges", "memberships"), load_demo(), strict=True):
        there = pq.read_table(shown.folder / "xnq-demo" / "input" / f"{name}.parquet")
        assert table.equals(there)


def test_the_label_plan_is_a_table_with_headings(shown: SimpleNamespace) -> None:
    plan = command(shown.folder, "label-plan", "xnq-demo/run", "--budget", "40").out
    head = next(at for at, line in enumerate(plan) if line.startswith("community"))
    for words in ("labels to add", "now", "planned", "as many random labels"):
        assert words in plan[head]
    row = plan[head + 1]
    assert row.startswith("page-")
    now, planned, random, published = map(float, row.split()[-4:])
    assert planned < random <= now
    assert published > 0


def test_the_labels_of_a_plan_narrow_the_widest_intervals(
    shown: SimpleNamespace,
) -> None:
    """As the page on few labels has it: copied, and declared ``by_place``."""
    inputs = shown.folder / "xnq-demo" / "input"
    command(shown.folder, "label-plan", "xnq-demo/run", "--budget", "50")
    plan = pq.read_table(shown.folder / "label_plan.parquet")["node_id"].to_pylist()
    nodes = pq.read_table(inputs / "nodes.parquet").to_pandas().set_index("node_id")
    truth = pq.read_table(inputs / "truth.parquet").to_pandas().set_index("node_id")
    nodes.loc[plan, "label"] = truth.loc[plan, "label"]
    nodes.to_parquet(inputs / "more.parquet")
    tables = {"nodes": "more", "edges": "edges", "memberships": "memberships"}
    words = [f"--{name}={inputs}/{file}.parquet" for name, file in tables.items()]
    command(shown.folder, "run", *words, "--out=more", "--set=labels.drawn=by_place")
    before, after = (
        pq.read_table(shown.folder / run / "prevalence.parquet").to_pandas()
        for run in ("xnq-demo/run", "more")
    )
    widest = [(table["upper"] - table["lower"]).max() for table in (before, after)]
    assert widest[1] < 0.6 * widest[0]
