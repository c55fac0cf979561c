"""The command ``datasets``: the list of graphs, and a graph from raw files."""

from __future__ import annotations

import json
import logging

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer

from tests.evaluation.datasets.forms import write_linkx
from xnq_dist.app.datasets_command import app
from xnq_dist.app.output import json_alone
from xnq_dist.core.errors import InfrastructureError, SettingsError
from xnq_dist.evaluation.datasets import known_graphs as registry
from xnq_dist.evaluation.datasets.known_graphs import (
    Dataset,
    Expected,
    RemoteFile,
    Source,
)

NODES = 100


def run(*arguments: str) -> None:
    with json_alone("--json" in arguments):
        typer.main.get_command(app).main(list(arguments), standalone_mode=False)


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """A small graph registered as Genius, with its raw file in a folder."""
    folder = tmp_path / "raw"
    folder.mkdir()
    labels = (np.arange(NODES) % 4 == 0).astype(int)
    edges = np.stack([np.arange(NODES - 1), np.arange(1, NODES)], axis=1)
    write_linkx(folder / "genius.mat", np.ones((NODES, 2)), labels, edges)
    file = RemoteFile("genius.mat", "http://127.0.0.1:9/genius.mat", size=None)
    expected = Expected(NODES, NODES - 1, 2, 2, share=0.25)
    source = Source("linkx", "linkx", (file,), expected)
    dataset = Dataset(
        "genius", (source,), "not stated", "none", "", {"splits.parquet": None}
    )
    known = dict(registry.DATASETS) | {"genius": dataset}
    monkeypatch.setattr(registry, "DATASETS", known)
    monkeypatch.delenv("XNQ_DATA_DIR", raising=False)
    return folder


def test_list_names_every_task_with_size_licence_and_place(
    raw, tmp_path, monkeypatch, capsys
):
    run("fetch", "genius", "--out", str(tmp_path), "--from", str(raw))
    monkeypatch.setenv("XNQ_DATA_DIR", str(tmp_path))
    capsys.readouterr()
    run("list", "--json")
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert lines[0].split() == [
        *("name", "nodes", "edges", "features", "classes", "download"),
        *("licence", "found"),
    ]
    assert [line.split()[0] for line in lines[1:]] == list(registry.known_tasks())
    rows = json.loads(shown.out)
    assert rows["cora-2"]["classes"] == 2
    assert rows["cora-multi"]["classes"] == 7
    assert rows["questions"]["download"] == "47.4 MB"
    assert rows["genius"]["found"] == str(tmp_path / "genius")
    assert rows["flickr"]["found"] == "no"


def test_fetch_reports_a_hash_that_is_not_recorded(raw, tmp_path, capsys):
    out = ("--out", str(tmp_path / "data"))
    run("fetch", "genius", *out, "--from", str(raw), "--json")
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    digest = summary["files"][0]["sha256"]
    assert "100 nodes, 99 directed edges, 2 features" in shown.err
    assert "no hash is recorded for genius.mat" in shown.err
    assert f"--sha256 genius.mat={digest}" in shown.err
    again = ("--from", str(raw), "--overwrite", "--sha256", digest)
    run("fetch", "genius", *out, *again)
    assert "no hash is recorded" not in capsys.readouterr().out
    run("fetch", "genius", *out)
    assert "genius exists already: " in capsys.readouterr().out
    nodes = tmp_path / "data" / "genius" / "nodes.parquet"
    pq.write_table(pq.read_table(nodes, columns=["node_id", "label"]), nodes)
    run("fetch", "genius", *out)
    assert "exists already, without features: " in capsys.readouterr().out


def test_fetch_without_a_folder_or_with_an_unclear_hash_is_refused(raw, tmp_path):
    with pytest.raises(SettingsError, match="--out"):
        run("fetch", "genius")
    with pytest.raises(SettingsError, match="FILE=HASH"):
        run("fetch", "cora", "--out", str(tmp_path), "--sha256", "0" * 64)


def test_fetch_logs_where_it_fetches_from(raw, tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "xnq_dist.evaluation.datasets")
    # the command line's logger does not propagate records
    monkeypatch.setattr(logging.getLogger("xnq_dist"), "propagate", True)
    with pytest.raises(InfrastructureError, match="cannot be reached"):
        run("fetch", "genius", "--out", str(tmp_path))
    assert "downloading http://127.0.0.1:9/genius.mat" in caplog.text
