"""Lock files, licences and the audit."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import tomllib
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from xnq_dist._version import __version__

ROOT = Path(__file__).parents[2]
LOCKS = {
    "cpu": ("prefect", "evaluation", "kubernetes", "docker"),
    "gpu": ("prefect", "evaluation", "kubernetes", "docker", "gpu"),
}
"""Extras in each lock file."""


def _audit() -> Any:
    file = str(ROOT / ".ci" / "audit")
    loader = importlib.machinery.SourceFileLoader("audit", file)
    spec = importlib.util.spec_from_loader("audit", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


audit = _audit()


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile in order, with continued lines joined."""
    text = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not re.match(r"\s*(#|$)", line)]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    pairs = (line.split(maxsplit=1) for line in joined)
    return [(name.upper(), " ".join(value.split())) for name, value in pairs]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_keeps_the_bounds_of_the_project(name: str) -> None:
    pins = audit.locked(ROOT / "deploy" / "docker" / f"{name}.lock")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    lines = [
        *project["project"]["dependencies"],
        *project["build-system"]["requires"],
        *(line for extra in LOCKS[name] for line in extras[extra]),
    ]
    for line in lines:
        requirement = Requirement(line)
        if requirement.name == "xnq-dist":  # another extra
            continue
        version = pins[audit.normal(requirement.name)]
        assert requirement.specifier.contains(Version(version)), f"run .ci/lock: {line}"


def test_images_are_named_by_the_version_of_the_package() -> None:
    files = (*(ROOT / "deploy").rglob("*.*"), *(ROOT / "docs").rglob("*.md"))
    text = "".join(file.read_text() for file in files if file.suffix != ".lock")
    versions = re.findall(r"xnq-dist:([\d.]+\d)", text)
    assert {*versions} == {__version__}


def test_the_image_installs_hashed_packages_only_and_ends_as_a_user() -> None:
    steps = instructions()
    runs = " && ".join(value for name, value in steps if name == "RUN")
    installs = re.findall(r"pip install ([^&]*)", runs)
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(
        installs[1].split()
    )
    users = [value for name, value in steps if name == "USER"]
    assert users == ["10001:10001"]
    # What is copied is let through by .dockerignore.
    let = (ROOT / ".dockerignore").read_text().splitlines()
    for name, value in steps:
        if name == "COPY":
            for source in value.replace("${LOCK}", "*.lock").split()[:-1]:
                assert f"!{source}" in let


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("MIT AND (Apache-2.0 OR GPL-3.0-only)", True),
        ("BSD-2-Clause AND Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("Other/Proprietary License", False),
        ("none", False),
    ],
)
def test_licences_are_allowed_by_name(licence: str, allowed: bool) -> None:
    assert audit.is_allowed(licence) is allowed


def test_a_package_with_an_unknown_licence_fails_the_audit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = Message()
    metadata["Name"] = "Some_Package"
    metadata["License"] = "Ask us"

    one = SimpleNamespace(metadata=metadata)
    monkeypatch.setattr(audit.importlib.metadata, "distributions", lambda: [one])
    monkeypatch.setattr(audit, "locked", lambda *_: {"some-package": "1.0"})
    monkeypatch.setattr(audit, "audit_vulnerabilities", list)
    monkeypatch.setattr(audit.sys, "argv", ["audit"])
    assert audit.main() == 1
    assert "some-package: Ask us" in capsys.readouterr().out


def test_licences_of_the_installed_dependencies_are_allowed() -> None:
    assert audit.refused_licences(audit.locked()) == {}


def test_packages_without_an_answer_count_as_not_audited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": []}]}
    other = {"name": "b", "version": "1", "skip_reason": "no network"}
    known, audited = audit.vulnerabilities(json.dumps({"dependencies": [one, other]}))
    assert (known, audited) == (["a 1: X-1, fixed in no version"], 1)

    monkeypatch.setattr(audit, "locked", lambda *_: {"a": "1", "b": "1"})
    done = SimpleNamespace(stdout="")
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: done)
    assert audit.audit_vulnerabilities() == []
    assert "2 of 2 packages not audited" in capsys.readouterr().out


def test_the_change_log_names_the_last_audit() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"Last audit of the dependencies: \d{4}-\d\d-\d\d", text)
