"""Wrong inputs are refused before workers start; similar right ones are planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.wrong import CASES, Case, write_tables
from xnq_dist import pipeline
from xnq_dist.app.cli import main
from xnq_dist.core import cluster

QUICK = ("cluster.workers=1", "cluster.memory_limit=4 GiB", "reservoir.dim=8")
COMPLETE = ("prevalence.parquet", "published.json", "embeddings", "graph", "labels")
"""What a refused run must not leave."""


class Planned(BaseException):
    """The plan was reached."""


@pytest.fixture(autouse=True)
def up_to_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """End every run at its plan, and fail where workers start."""

    def plan(*_: Any) -> None:
        raise Planned

    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("workers started")

    monkeypatch.setattr(pipeline, "plan_run", plan)
    monkeypatch.setattr(cluster, "open_cluster", start)


def command(folder: Path, arguments: tuple[str, ...]) -> list[str]:
    """The command line; the case's options come last and count."""
    plain = {"--nodes": "nodes.parquet", "--edges": "edges.parquet"}
    options = [f"{name}={folder / file}" for name, file in plain.items()]
    options.append(f"--out={folder.parent / 'run'}")
    quick = [f"--set={setting}" for setting in QUICK]
    chosen = [each.replace("{folder}", str(folder)) for each in arguments]
    return ["run", *options, *quick, *chosen]


def ended(capfd: Any, folder: Path, arguments: tuple[str, ...]) -> tuple[int, str]:
    """Exit status, 0 for a run that reached its plan, and what was reported."""
    try:
        main(command(folder, arguments))
    except Planned:
        return 0, capfd.readouterr().err
    except SystemExit as end:
        return int(end.code or 0), capfd.readouterr().err
    raise AssertionError("neither refused nor planned")


def test_there_are_enough_cases():
    assert len(CASES) >= 100
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wrong_input_is_named_and_its_correction_is_planned(
    tmp_path: Path, capfd: Any, case: Case
):
    wrong, right = tmp_path / "a" / "wrong", tmp_path / "b" / "right"
    for folder, spoil in ((wrong, case.spoil), (right, case.right)):
        write_tables(folder)
        spoil(folder)
    status, reported = ended(capfd, wrong, case.arguments)
    assert status == case.status, reported
    assert "Traceback" not in reported
    assert "internal error" not in reported
    last = reported.strip().splitlines()[-1]
    assert [
        word for word in case.words if word not in (last if status else reported)
    ] == [], last
    if status:
        assert last.startswith("xnq-dist: ")
        assert [n for n in COMPLETE if (wrong.parent / "run" / n).exists()] == []
    arguments = case.right_arguments
    arguments = case.arguments if arguments is None else arguments
    status, reported = ended(capfd, right, arguments)
    assert status == 0, reported
    if case.status == 0:
        assert [word for word in case.words if word not in reported] != []
