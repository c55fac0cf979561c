"""The command ``convert``, and a converted graph in the next commands."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.convert.one_graph import WRITERS
from xnq_dist.app.cli import main


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


@pytest.mark.parametrize("form", ["pyg", "ogb", "graphml", "node-link"])
def test_a_converted_graph_passes_the_checks_of_estimate(form, tmp_path, capsys):
    name, write = WRITERS[form]
    write(tmp_path / name)
    out = tmp_path / "graph"
    assert run("convert", "auto", str(tmp_path / name), str(out), "--json") == 0
    said = capsys.readouterr()
    assert f"12 nodes and 30 edges in {out}" in said.err.splitlines()
    words = shlex.split(json.loads(said.out)["run"])
    assert words[:2] == ["xnq-dist", "run"]
    del words[words.index("--out") : words.index("--out") + 2]
    assert run("estimate", *words[2:]) == 0
    assert capsys.readouterr().out.split()[:2] == ["nodes", "12"]


def test_a_refusal_is_one_sentence_with_status_2(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text('{"nodes": [')
    assert run("convert", "auto", str(path), str(tmp_path / "out")) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"xnq-dist: {path} is not node-link JSON (")
    assert len(said.err.splitlines()) == 1


def test_missing_arguments_are_answered_with_the_formats(tmp_path, capsys):
    assert run("convert", "graph.graphml", str(tmp_path)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert all(f"{form}, " in said.err for form in WRITERS)
    assert "Write xnq-dist convert FORMAT IN OUT" in said.err


def test_the_help_lists_the_formats_with_what_they_are(capsys):
    assert run("convert", "--help") == 0
    said = capsys.readouterr().out
    assert all(f"\n  {form} " in said for form in WRITERS)
    assert "GraphML, with attributes of nodes" in said
