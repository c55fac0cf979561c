"""The demos: one command each, and a page of the documentation with its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from xnq_dist.app.demo import EXAMPLES, run_demo
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import SettingsError

PAGES = Path(__file__).parents[2] / "docs" / "examples"


def test_an_unknown_demo_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="choose bots, votes, infections"):
        run_demo(str(tmp_path), name="cats")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_demo_has_settings_and_a_page(name: str) -> None:
    load_settings(overrides=EXAMPLES[name].settings)
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert f"xnq-dist demo {name}" in page
    for heading in ("**Question.**", "**Command**", "**Answer**", "**What not to"):
        assert heading in page


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_has_the_figures_of_the_command(
    name: str, tmp_path: Path, prefect_home: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "xnq_dist.app.cli", "demo", name, "--json"]
    done = subprocess.run(
        command,
        cwd=tmp_path,  # each demo has a folder of its own there
        env=prefect_home,
        capture_output=True,
        text=True,
        timeout=1200,
        check=True,
    )
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    folder = {"bots": "xnq-demo"}.get(name, f"xnq-{name}")
    assert summary["run"] == str(tmp_path / folder / "run")
    errors = summary["errors"]
    run, labelled = errors["auto (the run's)"], errors["share of the labelled"]
    assert all(run[kind] < labelled[kind] for kind in run)
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    for line in done.stdout.splitlines():
        if line.startswith(tuple(errors)):
            assert line in page
