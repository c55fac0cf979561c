"""Extensions: one module or function and one record, which all other code reads."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import SmallGraph, published_values, small_settings, write_graph
from tests.evaluation.test_on_workers import begin
from tests.report.fake_run import prevalence_table, write_fake_run
from tests.report.test_page import made as made_page
from tests.test_pipeline import made_once, run, whole_line
from xnq_dist.app.settings_help import settings_help
from xnq_dist.core.clusters import CLUSTERS, ClusterKind
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.records import METHODS, MethodRecord, PartRecord, Registry
from xnq_dist.core.store import RunDirectory
from xnq_dist.due import due_stages
from xnq_dist.evaluation.methods.known_methods import choose_methods
from xnq_dist.evaluation.on_workers import evaluate_method
from xnq_dist.jobs import run_all
from xnq_dist.report.page_data import Page, environment
from xnq_dist.report.sections import SECTIONS
from xnq_dist.steps import STEPS
from xnq_dist.steps.publish import publish

__all__ = ["made_once", "run"]

ADDED = "more_modules.added"
Add = Callable[["Registry[Any]", PartRecord, str], None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Adds a module to a registry, in a folder outside the package."""
    folder = tmp_path / "more_modules"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""More."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))

    def added(registry: Registry[Any], record: PartRecord, text: str) -> None:
        (folder / "added.py").write_text(text)
        monkeypatch.setitem(registry, record.name, record)

    yield added
    for name in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[name]


THREADS = '''
"""Threads of this process."""

from distributed import LocalCluster

from xnq_dist.core.need import Workers

def size(settings, free=None):
    return Workers(count=1, threads=2, memory=2**33)


def start(settings, size, stack):
    return LocalCluster(
        n_workers=size.count,
        threads_per_worker=size.threads,
        memory_limit=size.memory,
        processes=False,
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    )
'''


def test_a_new_cluster_kind_does_a_run(
    add: Add, small_graph: SmallGraph, run: RunDirectory, tmp_path: Path
) -> None:
    with pytest.raises(
        SettingsError, match=r"no cluster kind 'threads': choose one of auto, local"
    ):
        load_settings(overrides=["cluster.kind=threads"])
    threads = {"name": "threads", "text": "threads of this process"}
    add(CLUSTERS, ClusterKind(**threads, module=ADDED), THREADS)
    assert "; threads: threads of this process" in " ".join(settings_help().split())
    settings = small_settings("cluster.kind=threads")
    run_all(small_graph.sources, str(tmp_path / "threads"), settings)
    assert published_values(tmp_path / "threads").equals(published_values(run.uri))


def largest(facts: Page) -> str:
    """The largest community."""
    view = facts.view
    if len(view.names) < 2:
        return ""
    template = environment().from_string("<p>{{ name }} has the most members.</p>")
    return facts.render(template, name=view.name(view.n_nodes.argmax()))


STEP = '''
"""The number of communities."""


def make(results):
    return {"count.txt": str(len(results.view.names)).encode()}
'''


def test_a_new_step_is_published(add: Add, tmp_path: Path) -> None:
    add(STEPS, PartRecord(name="count", module=ADDED), STEP)
    run = write_fake_run(tmp_path / "run", [prevalence_table(["a", "b"])])
    publish(run, load_settings())
    assert (tmp_path / "run" / "count.txt").read_text() == "2"


def test_a_new_section_is_on_the_page_in_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SECTIONS, "largest", ("The largest", largest))
    html = made_page(prevalence_table(["<a>", "<b>"]))
    headings = re.findall('<h2 id="(.+?)">', html)
    first = ["communities", "glance", "inputs", "computed", "run", "cite"]
    assert headings == [*first, "largest"]
    assert re.search('<h2 id="largest">The largest</h2>\n<p>&lt;[ab]&gt; has', html)
    assert "The largest" not in made_page(prevalence_table(["a"]))


SEVERAL = '''
"""The reservoirs of xnq+ with the readout of xnq."""

from xnq_dist.methods.xnq import embed
from xnq_dist.readout.fit import write_posteriors
from xnq_dist.readout.fit import fit_logistic as fit
'''


def test_a_new_method_does_a_run_and_is_evaluated(
    add: Add, small_graph: SmallGraph, thread_client: Any, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="no method 'several': choose one of xnq"):
        load_settings(overrides=["method=several"])
    several = MethodRecord(
        name="several",
        title="Several reservoirs",
        text="Several reservoirs",
        report="A logistic readout turned all states into scores",
        module=ADDED,
    )
    add(METHODS, several, SEVERAL)
    assert "; several: Several reservoirs" in " ".join(settings_help().split())
    settings = small_settings("method=several", "partitions=2")
    sources, out = small_graph.sources, tmp_path / "out"
    run = whole_line(out, sources, settings, thread_client)
    assert not due_stages(run, sources, settings)
    assert "embeddings" in due_stages(run, sources, small_settings("partitions=2"))
    assert run.complete("embeddings").facts["blocks"] == [settings.reservoir.dim]
    page = " ".join((out / "report.html").read_text().split())
    assert "turned all states into scores (<code>several</code>)" in page
    labelled = write_graph(tmp_path / "labelled", nodes=300, labelled=1.0)
    work = begin(tmp_path / "work", labelled, settings=settings)
    (method,) = choose_methods(["several"], has_features=True)
    found = evaluate_method(thread_client, work, method, 1, ("sld",))["results"]
    errors = [
        row["value"]
        for row in found.to_pylist()
        if (row["split"], row["metric"]) == ("test", "ae")
    ]
    assert np.mean(errors) < 0.25
    assert set(found["embedder"].to_pylist()) == {"Several reservoirs"}
