"""The wheel, installed in a new environment and used from a hostile folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.app.conftest import ROOT

HOSTILE = ("types.py", "dask.py", "random.py", "flows/__init__.py", "xnq_dist.py")
"""Names of files in a user's folder that are also names of modules."""

PROGRAM = """
from typing import assert_type

import xnq_dist

settings = xnq_dist.load_settings(overrides=["seed=3"])
assert_type(settings.seed, int)
assert_type(settings, xnq_dist.Settings)
sources = xnq_dist.Sources("nodes.parquet", "edges.parquet")
with (
    xnq_dist.open_run("out", sources) as run,
    xnq_dist.open_cluster(settings.cluster) as connection,
    xnq_dist.connect(connection) as client,
):
    assert_type(run, xnq_dist.RunDirectory)
    xnq_dist.run_stages(run, sources, settings, client)
    xnq_dist.run_stages(run)  # type: ignore[call-arg]
settings.seeds  # type: ignore[attr-defined]
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory) -> Path:
    """Folder of the commands of an environment with the wheel.

    The packages that it needs are those of this environment, read from where they are;
    this environment's own installation of the project is not among them.
    """
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False, symlinks=True)
    own = {"base": str(home), "platbase": str(home)}
    site = Path(sysconfig.get_path("purelib", "venv", vars=own))
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [sys.executable, "-m", "pip", "--python", home / "bin" / "python"]
    command += ["install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(command, check=True, capture_output=True)
    return home / "bin"


@pytest.fixture
def hostile(tmp_path) -> Path:
    """A folder with files that raise an error when they are imported."""
    for name in HOSTILE:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"raise RuntimeError({name!r} + ' was imported')\n")
    return tmp_path


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {k: v for k, v in kept.items() if not k.startswith("PREFECT_")}


def test_the_wheel_holds_one_package_with_its_types(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"xnq_dist"}
    assert "xnq_dist/py.typed" in names
    for template in ("report.html.j2", "page.js", "page.css"):
        assert f"xnq_dist/report/templates/{template}" in names


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel_beside_a_users_own_modules(installed, hostile):
    done = subprocess.run(
        [installed / "xnq-dist", "demo", "--out", "demo"],
        cwd=hostile,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "against the truth of the 48 pages" in done.stdout
    assert (hostile / "demo" / "run" / "prevalence.parquet").exists()


@pytest.mark.slow
def test_a_users_program_is_checked_against_the_wheel(installed, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    command += ["--python-executable", installed / "python", program]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
