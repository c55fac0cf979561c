"""The command `profile`: what it prints, its JSON and its exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.commands import ended
from tests.app.wrong import edit, first, write_tables
from tests.app.wrong.builders import at, rename


@pytest.fixture
def tables(tmp_path: Path) -> list[str]:
    write_tables(tmp_path / "t")
    names = ("nodes", "edges", "memberships")
    return [f"--{name}={tmp_path / 't' / name}.parquet" for name in names]


def test_the_profile_names_columns_classes_and_matches(tables, capfd):
    assert ended("profile", *tables) == 0
    out = capfd.readouterr().out
    assert "nodes.parquet: 60 rows" in out
    assert "label string" in out
    # Columns that a run would not use are shown, too.
    assert "age int64" in out
    assert "100.0 % match" in out
    assert "labels: bot: 16; human: 32" in out


def test_a_refusal_ends_with_status_2_and_what_is_accepted_with_0(
    tmp_path, tables, capfd
):
    edit("nodes", label=first(15, "Bot"))(tmp_path / "t")
    assert ended("profile", *tables, "--set", "checks.accept=[label-case]") == 0
    assert "note: accepted: label column 'label'" in capfd.readouterr().out
    assert ended("profile", *tables, "--json") == 2
    values = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert [found["code"] for found in values["findings"]] == ["label-case"]
    edges = values["tables"]["edges"]
    assert edges["matched"] == edges["rows"]


def test_few_labels_of_a_class_are_shown_as_fewer_than_ten(tmp_path, tables, capfd):
    edit("nodes", label=first(3, "rare"))(tmp_path / "t")
    assert ended("profile", *tables) == 0
    assert "rare: fewer than 10" in capfd.readouterr().out


def test_a_hundred_percent_match_means_every_row(tmp_path, tables, capfd):
    file = tmp_path / "t" / "edges.parquet"
    table = pq.read_table(file)
    pq.write_table(pa.concat_tables([table] * 20), file)
    edit("edges", dst=at(0, 10**6))(tmp_path / "t")
    assert ended("profile", *tables) == 2
    assert re.search(r"edges.parquet: .* 99.9 % match", capfd.readouterr().out)


def test_foreign_columns_are_named_in_a_short_sentence(tmp_path, capfd, monkeypatch):
    write_tables(tmp_path / "t")
    monkeypatch.chdir(tmp_path / "t")
    rename("nodes", node_id="c0", label="c1", age="c2")(Path())
    rename("edges", src="c3", dst="c4")(Path())
    assert ended("profile", "--nodes=nodes.parquet", "--edges=edges.parquet") == 2
    sentence = capfd.readouterr().err.splitlines()[-1].removeprefix("xnq-dist: ")
    assert len(sentence) <= 250
    assert {"c0", "c1", "c3", "c4"} <= set(re.findall(r"c\d", sentence))
