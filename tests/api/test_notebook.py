"""The notebook of the documentation runs, with the results that it is shown with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from docs import hooks

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOK = DOCS / "notebooks" / "dataframes.ipynb"


@pytest.mark.ci
def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path):
    notebook = nbformat.read(NOTEBOOK, 4)
    stored = list(map(words, notebook.cells))
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=900, resources=where).execute()
    assert list(map(words, notebook.cells)) == stored


def words(cell) -> list[str]:
    """The results of a cell without numbers and the paths of its run."""
    shown = (each.get("data", {}) for each in cell.get("outputs", ()))
    results = [each["text/plain"] for each in shown if each]
    named = [re.sub(r"\S*/run\)", "run)", text) for text in results]
    return [re.sub(r"[\W\d_]+", " ", text) for text in named]


def test_the_documentation_shows_cells_and_results():
    page = (DOCS / "how-to" / "dataframes.md").read_text(encoding="utf-8")
    shown = hooks.on_page_markdown(page)
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert "".join(cell["source"]) in shown
    assert "PrevalenceResult" not in shown  # as a table, not as text
    assert "<td>page 6</td>" in shown
    assert "file://" not in shown  # a link to the machine that made it
