"""Prefect's own page in a headless Chromium: what a person on call sees there.

The pictures of the documentation are made by ``XNQ_PICTURES=docs/pictures`` and, for
short paths in them, ``--basetemp=/data``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.conftest import ROOT, end_all, running_server
from tests.conftest import write_graph
from tests.report.test_browser import browser

pytestmark = [pytest.mark.server, pytest.mark.browser]

__all__ = ["browser"]

NIGHT = """
import json, sys
from flows.nightly import nightly
nightly(**json.loads(sys.argv[1]), return_state=True)
"""
SETTINGS = {
    "method": "xnq",
    "reservoir": {
        "dim": 16,
        "supersteps": 3,
        "recurrent_scale": 1.0,
        "input_scale": 0.5,
    },
    "readout": {"C": 1.0},
    "cluster": {"workers": 2, "threads": 1},
    "watch": {"address": "http://reports.example/nightly"},
}


class Nights:
    """Runs of the flow `nightly` on one run directory, with a server."""

    def __init__(self, url: str, environment: dict[str, str], folder: Path) -> None:
        self.url, self._environment = url, environment | {"PREFECT_API_URL": url}
        write_graph(folder / "input", nodes=600, edges=2500, labelled=1.0)
        nodes = np.arange(600)
        names = pa.array([f"page {k}" for k in nodes // 40])
        table = pa.table({"community": names, "node_id": nodes})
        pq.write_table(table, folder / "input" / "pages.parquet")
        self.parameters: dict[str, Any] = {
            "nodes": str(folder / "input" / "nodes.parquet"),
            "edges": str(folder / "input" / "edges.parquet"),
            "memberships": str(folder / "input" / "pages.parquet"),
            "out": str(folder / "run"),
            "settings": SETTINGS,
        }

    def start(self, **parameters: Any) -> subprocess.Popen[bytes]:
        given = json.dumps(self.parameters | parameters)
        return subprocess.Popen(
            [sys.executable, "-c", NIGHT, given],
            env=self._environment | {"PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )

    def flow_run(self) -> dict[str, Any]:
        """The newest flow run."""
        query = {"sort": "START_TIME_DESC", "limit": 1}
        found = httpx.post(f"{self.url}/flow_runs/filter", json=query, timeout=60)
        return dict(found.json()[0])

    def artifact(self, flow_run: str) -> dict[str, Any]:
        """The text of a flow run; empty if it is not there yet."""
        query = {"artifacts": {"flow_run_id": {"any_": [flow_run]}}}
        found = httpx.post(f"{self.url}/artifacts/filter", json=query, timeout=60)
        return next((one for one in found.json() if one["key"] == "xnq-run"), {})

    def done(self, **parameters: Any) -> dict[str, Any]:
        """The flow run of a night that came to its end."""
        with self.start(**parameters) as process:
            process.wait(900)
        return self.flow_run()


@pytest.fixture(scope="module")
def nights(prefect_home, tmp_path_factory) -> Iterator[Nights]:
    folder = tmp_path_factory.mktemp("nights")
    environment = prefect_home | {"PREFECT_HOME": str(folder / "prefect")}
    with running_server(environment) as (url, _):
        yield Nights(url, environment, folder)


class Tab:
    """A tab of the browser on Prefect's page."""

    def __init__(self, browser: Any, nights: Nights) -> None:
        self._root = nights.url.removesuffix("/api")
        size = {"width": 1200, "height": 760}
        self._tab = browser.new_page(viewport=size)
        self._tab.set_default_timeout(240_000)
        self._tab.route("**/ui-settings", self._own_api)

    def _own_api(self, route: Any) -> None:
        """Let the page ask its own server, which is not at Prefect's usual port."""
        found = route.fetch()
        values = found.json() | {"api_url": f"{self._root}/api"}
        route.fulfill(response=found, json=values)

    def text(self, path: str, click: str = "", until: str = "", save: str = "") -> str:
        """The text of a page, once a text is there; a picture of it."""
        self._tab.goto(f"{self._root}/{path}", wait_until="commit")
        if click:
            self._tab.get_by_role("tab", name=click).first.click()
        self._tab.get_by_text(until, exact=False).first.wait_for()
        folder = os.environ.get("XNQ_PICTURES")
        if folder and save:
            self._tab.wait_for_timeout(1500)  # its lines fade in
            self._tab.screenshot(path=f"{folder}/{save}.png")
        return str(self._tab.inner_text("body"))


@pytest.fixture
def tab(browser, nights) -> Tab:
    return Tab(browser, nights)


def test_a_finished_run_shows_what_changed_and_the_report(nights, tab):
    first = nights.done()
    assert first["state"]["message"].startswith("first results")
    table = pq.read_table(nights.parameters["nodes"])
    labels = np.array(table["label"].to_numpy(zero_copy_only=False))
    labels[:36], labels[40:76] = 1, 0  # most members of two pages
    at = table.schema.get_field_index("label")
    changed = pa.array(labels, from_pandas=True).cast(pa.int64())
    pq.write_table(table.set_column(at, "label", changed), nights.parameters["nodes"])
    night = nights.done()
    assert night["state"]["type"] == "COMPLETED"
    message = night["state"]["message"]
    assert "communities changed beyond chance" in message
    assert message.endswith("Report: http://reports.example/nightly/report.html")
    text = nights.artifact(night["id"])
    shown = tab.text(
        f"artifacts/artifact/{text['id']}", until="Since last time", save="night-done"
    )
    for fact in ("Done", "communities changed beyond chance", "page ", "report.html"):
        assert fact in shown
    host = os.uname().nodename
    lines = httpx.post(f"{nights.url}/logs/filter", json={}, timeout=60).json()
    ours = [line for line in lines if line["name"].startswith("xnq_dist")]
    assert ours
    assert all(line["name"].endswith(f" on {host}") for line in ours)
    assert all(line["flow_run_id"] and line["level"] >= 20 for line in ours)
    assert not [line for line in lines if line["name"].startswith("distributed")]


def test_a_failed_run_shows_its_cause_and_what_is_next(nights, tab):
    night = nights.done(nodes="/data/none.parquet")
    assert night["state"]["type"] == "FAILED"
    assert "none.parquet does not exist" in night["state"]["message"]
    assert "Next: correct the table or setting" in night["state"]["message"]
    text = nights.artifact(night["id"])
    shown = tab.text(
        f"artifacts/artifact/{text['id']}", until="Cause", save="night-failed"
    )
    assert "none.parquet does not exist" in shown
    logs = tab.text(f"runs/flow-run/{night['id']}", until="none.parquet")
    assert "ERROR" in logs.upper()
    assert "Next: correct the table or setting" in shown


def test_a_run_in_progress_shows_superstep_time_left_and_lost_workers(nights, tab):
    long = {**SETTINGS["reservoir"], "dim": 256, "supersteps": 10_000}
    settings = SETTINGS | {"reservoir": long, "checkpoint": {"every": 500}}
    with nights.start(settings=settings) as process:
        try:
            end, killed, text = time.monotonic() + 900, False, ""
            while "1 lost" not in text:
                assert time.monotonic() < end, text
                assert process.poll() is None
                time.sleep(2)
                night = nights.flow_run()
                artifact = nights.artifact(night["id"])
                text = str(artifact.get("data"))
                if "supersteps" in text and not killed:
                    killed = True
                    _worker_of(process.pid).kill()
            shown = tab.text(
                f"artifacts/artifact/{artifact['id']}",
                until="1 lost",
                save="night-running",
            )
            assert "embed: supersteps" in shown
            assert "/10,000" in shown
            assert " left" in shown
        finally:
            end_all(process)


def _worker_of(pid: int) -> psutil.Process:
    """A Dask worker of the flow: the largest of its processes."""
    children = psutil.Process(pid).children(recursive=True)
    return max(children, key=lambda one: one.memory_info().rss)
