"""Credentials in addresses are used, and do not appear in any output or file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.app.commands import SMALL, ended, executed, run_words
from tests.conftest import small_settings, write_graph
from tests.object_store import Key, serving
from xnq_dist.monitor.on_prefect import warn_of_credentials

CANARIES = ("AKCANARY", "SECRETCANARY", "TOKENCANARY", "WORDCANARY")
"""Secret parts of addresses."""


def run(*arguments: str) -> tuple[int, str]:
    """Exit status and all output of a command line."""
    environment = os.environ | {"AWS_EC2_METADATA_DISABLED": "true"}
    done = executed("run", *arguments, env=environment)
    return done.returncode, done.stdout + done.stderr


def tables(folder: Path) -> list[str]:
    return run_words(folder / "input", folder / "run", *SMALL)[1:]


def seen_in(folder: Path) -> set[tuple[str, str]]:
    """Secrets that were found, each with a file that contains it."""
    held = [(file, file.read_bytes()) for file in folder.rglob("*") if file.is_file()]
    assert held
    return {
        (canary, file.name)
        for file, data in held
        for canary in CANARIES
        if canary.encode() in data
    }


@pytest.mark.server
def test_a_run_with_credentials_in_its_addresses_leaves_none(tmp_path):
    write_graph(tmp_path / "input", nodes=120, edges=400)
    (tmp_path / "input" / "members.csv").write_text(
        "community,node_id\na,1\na,2\nb,3\n"
    )
    (tmp_path / "store").mkdir()
    with serving(tmp_path / "store") as store:
        where, key = {}, Key("AKCANARY", "SECRETCANARY")
        for name in ("nodes", "edges"):
            path = f"bucket/{name}.parquet"
            store.upload(tmp_path / "input" / f"{name}.parquet", path)
            where[name] = store.uri(path, key)
        given = [
            *("--nodes", where["nodes"]),
            *("--edges", where["edges"]),
            *(
                "--memberships",
                f"file://{tmp_path}/input/members.csv?token=TOKENCANARY",
            ),
            *("--out", f"file://{tmp_path}/run?password=WORDCANARY"),
            *(f"--set={override}" for override in SMALL),
        ]
        status, text = run(*given)
        assert status == 0, text
        again, more = run(*given)
        assert again == 0, more
    assert "nothing changed since" in more
    for canary in CANARIES:
        assert canary not in text + more
    assert (tmp_path / "run" / "prevalence.parquet").exists()
    assert "s3://***@bucket/nodes.parquet" in (tmp_path / "run/_run.json").read_text()
    assert seen_in(tmp_path / "run") == set()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ("--memberships", "s3://AKCANARY:SECRETCANARY@bucket/m.csv?region=eu"
             "&scheme=http&endpoint_override=127.0.0.1:9"),
            marks=pytest.mark.slow,
        ),
        ("--memberships", "s3://AKCANARY:SECRET/CANARY@bucket/m.csv?token=TOKENCANARY"),
        ("--nodes", "s3://AKCANARY:SECRETCANARY@bucket/n.csv?secret_key=TOKENCANARY"),
        ("--out", "s3://AKCANARY:SECRETCANARY@bucket/run?secret_key=TOKENCANARY"),
        ("--set=cluster.kind=address",
         "--set=cluster.address=tcp://me:WORDCANARY@127.0.0.1:9"),
    ],
    ids=["dead store", "unescaped", "unknown option", "out", "scheduler"],
)  # fmt: skip
def test_refusals_hide_credentials(tmp_path, monkeypatch, capfd, arguments):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    write_graph(tmp_path / "input", nodes=60, edges=200)
    dead = "m.csv?region" in str(arguments)
    assert ended("run", *tables(tmp_path), *arguments) == (4 if dead else 2)
    text = "".join(capfd.readouterr())
    assert text.strip().splitlines()[-1].startswith("xnq-dist: ")
    assert "CANARY" not in text


def test_parameters_with_credentials_of_a_deployment_are_warned_of(caplog):
    secret = "s3://AKCANARY:SECRETCANARY@bucket/nodes"
    settings = small_settings("scratch=s3://bucket/run?token=TOKENCANARY")
    with caplog.at_level(logging.WARNING, "xnq_dist"):
        warn_of_credentials(nodes=secret, settings=settings)
    assert [record.args[0] for record in caplog.records] == ["nodes", "settings"]
    assert "CANARY" not in caplog.text
    caplog.clear()
    warn_of_credentials(nodes="/data/nodes.parquet", settings=None)
    assert not caplog.records
