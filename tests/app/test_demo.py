"""The demo: one command, and a page of the documentation with its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "examples" / "bots.md"


@pytest.mark.slow
def test_the_page_has_the_figures_of_the_command(
    tmp_path: Path, prefect_home: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xnq_dist.app.cli", "demo", "--json"],
        cwd=tmp_path,
        env=prefect_home,
        capture_output=True,
        text=True,
        timeout=1200,
        check=True,
    )
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    assert summary["run"] == str(tmp_path / "xnq-demo" / "run")
    errors = summary["errors"]
    run, labelled = errors["auto (the run's)"], errors["share of the labelled"]
    assert all(run[kind] < labelled[kind] for kind in run)
    page = PAGE.read_text(encoding="utf-8")
    assert "xnq-dist demo" in page
    for line in done.stdout.splitlines():
        if line.startswith(tuple(errors)):
            assert line in page
