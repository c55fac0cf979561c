"""Damaged files: `doctor --verify` finds them, and the same command repairs them."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from tests.app.commands import ended
from tests.app.test_bad_input import dask, main_ok, run, tables
from tests.conftest import published_values

__all__ = ["dask", "tables"]


@pytest.mark.faults
def test_the_same_command_repairs_what_verify_finds(tables, capfd, dask):
    out = tables.parent / "run"
    given = ("--memberships", str(tables / "memberships.parquet"), *dask)
    main_ok(run(tables, *given))
    expected = published_values(out)
    capfd.readouterr()
    main_ok(["doctor", "--verify", str(out), "--json"])
    shown = capfd.readouterr()
    assert f"{out}: all files are intact" in shown.err
    assert json.loads(shown.out)["files"][0] == "ok"
    (file, *_) = out.glob("embeddings/*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 16
    file.write_bytes(data)
    assert ended("doctor", "--verify", str(out)) == 1
    shown = capfd.readouterr().out
    assert f"{file} differs from its checksum between byte 0 and" in shown
    assert "deletes what is damaged and makes it again" in shown
    # A changed setting reads them again: a worker finds the damage, the run repairs it.
    main_ok(run(tables, *given, "--set=readout.C=0.5"))
    log = capfd.readouterr().err
    assert "embeddings is deleted because it is damaged" in log
    main_ok(["doctor", "--verify", str(out)])
    main_ok(run(tables, *given))
    assert published_values(out).equals(expected)
    assert pq.read_table(out / "prevalence.parquet").num_rows == 4
