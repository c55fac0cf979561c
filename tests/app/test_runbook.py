"""The commands of `deploy/README.md` and of the guide, run as they are written.

Each page runs from its first to its last command in one shell, in a copy of the clone,
with a new home and a new environment. Network and processes are the shell's own, so
that port 4200 is free and nothing is left. The packages that the project needs are
those of this environment, and `pip` asks no index.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.app.conftest import ROOT

pytestmark = pytest.mark.server

RUNBOOK, GUIDE = ROOT / "deploy" / "README.md", ROOT / "docs/how-to/schedule.md"
NAMESPACE = ("--map-root-user", "--net", "--pid", "--fork", "--kill-child")
OWN = ["unshare", *NAMESPACE, "--mount-proc"]
LONGEST = 1500
"""Maximum seconds of a page on a busy machine."""


def blocks(page: Path) -> list[str]:
    """Fenced commands of a page, without the indentation of their list."""
    fences = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(), re.M | re.S)
    return [
        re.sub(f"^{indent}", "", text, flags=re.M)
        for indent, language, text in fences
        if not language
    ]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the files under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "xnq_dist", "flows", "deploy", "*.md", "*.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "clone" / name)
    return tmp_path / "clone"


def commands(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """The environment of a new user; `prefect` comes with the packages."""
    programs = folder / "programs"
    programs.mkdir()
    for name, words in {
        "python3.11": sys.executable,
        "prefect": "python -m prefect",
    }.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    (folder / "home").mkdir()
    return {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # means: without isolation
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        **variables,
    }


def shell(clone: Path, scripts: list[str], **variables: str) -> str:
    """What a shell prints that runs commands until one fails."""
    if shutil.which("unshare") is None or subprocess.run([*OWN, "true"]).returncode:
        pytest.skip("this machine does not permit network namespaces")
    script = ["set -eo pipefail", "ip link set lo up"]
    for number, text in enumerate(scripts):
        script += [f'echo "### {number} $(date +%s)"', text]
    done = subprocess.run(
        [*OWN, "bash", "-c", "\n".join(script)],
        cwd=clone,
        env=commands(clone.parent, variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def states(home: Path) -> dict[str, int]:
    """Number of flow runs of the pipeline by state, in Prefect's database."""
    query = """
        select flow_run.state_type, count(*) from flow_run
        join flow on flow.id = flow_run.flow_id
        where flow.name = 'xnq-nightly' and flow_run.state_type != 'SCHEDULED'
        group by 1
    """
    with sqlite3.connect(home / ".prefect" / "prefect.db") as database:
        return dict(database.execute(query).fetchall())


def test_the_runbook_leads_from_a_clone_to_results_and_back_from_trouble(clone: Path):
    text = RUNBOOK.read_text()
    pages = blocks(RUNBOOK)
    printed = shell(clone, pages)
    home = clone.parent / "home"
    runs = sum(page.count("deployment run") for page in pages)
    # One of them was given a table that is not there.
    assert states(home) == {"COMPLETED": runs - 1, "FAILED": 1}
    assert "missing.parquet does not exist" in printed or "missing.parquet" in printed
    # After the move nothing was computed again.
    old, new = home / "xnq-data/runs/nightly", home / "new-machine/runs/nightly"
    for stage in ("graph", "embeddings", "quantify"):
        name = f"{stage}/_manifest.json"
        assert (old / name).read_bytes() == (new / name).read_bytes()
    times = [int(found) for found in re.findall(r"^### \d+ (\d+)$", printed, re.M)]
    first = text.index("## After a failed night")
    newcomer = len(re.findall(r"^ *```$", text[:first], re.M)) // 2
    assert times[newcomer] - times[0] < 600


def test_the_guide_to_nightly_runs_works_as_written(clone: Path):
    install = blocks(RUNBOOK)[1:3]
    variables, *rest = blocks(GUIDE)
    shell(clone, [variables, *install, *rest])
    home = clone.parent / "home"
    assert states(home)["COMPLETED"] >= 1
    pointer = json.loads((home / "xnq-data/runs/nightly/published.json").read_text())
    assert pointer["run_id"]
    good_night = subprocess.run(
        [str(home / "xnq-data" / "nightly.sh")],
        env={**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
    )
    assert good_night.stdout == b""
