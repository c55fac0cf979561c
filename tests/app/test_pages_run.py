"""Every command block of README and tutorial, run as it is written.

What installs packages or runs the tests is left out: a test runs in an environment
where that has been done.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from xnq_dist.core.config import validate_settings

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/tutorial.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALL = ("python3 -m venv",)
"""Beginnings of lines that install, or install and test."""


def script(page: str) -> str:
    """The commands and Python blocks of a page as one shell script, in their order."""
    lines = ["set -euo pipefail"]
    text = (ROOT / page).read_text(encoding="utf-8")
    for language, block in BLOCK.findall(text):
        if language == "python":
            lines.append(f"python - <<'END'\n{block}END")
        elif language == "" and re.match(r"(xnq-dist|cd|python3) ", block):
            lines += [
                line.removeprefix("pip install . && ")
                for line in block.splitlines()
                if not line.startswith(INSTALL)
            ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader of one page goes on with the other."""
    return tmp_path_factory.mktemp("pages")


@pytest.mark.ci
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_the_page_run_in_their_order(page: str, folder: Path) -> None:
    commands = script(page)
    assert commands.count("xnq-dist ") >= 4
    assert commands.count("python - <<") == 1
    bin_first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=folder,
        env={**os.environ, "PATH": bin_first},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "All users: 22 % bots" in done.stdout


def test_settings_on_the_pages_are_accepted() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            if language == "yaml":
                validate_settings(yaml.safe_load(block))
