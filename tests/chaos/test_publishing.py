"""Published results stay complete while runs publish and are killed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.chaos.publishing import line_of, settings_of, started
from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.store import read_published, verify
from xnq_dist.steps.publish import publish

ROWS = {"prevalence": 80, "totals": 2, "anomalies": 80, "partitions": 4}


def look(out: str) -> str:
    """The published run_id, after a check that every table is complete and its own."""
    for name, count in ROWS.items():
        rows = pq.read_table(Path(out, f"{name}.parquet"))
        assert rows.num_rows == count, f"{name} has {rows.num_rows} rows"
        assert len(set(rows["run_id"].to_pylist())) == 1, f"{name} is of several runs"
    page = Path(out, "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>"), "the page is torn"
    version = read_published(out)
    for name in ROWS:
        found = set(version.read(name)["run_id"].to_pylist())
        assert found == {version.run_id}, f"{name} is of {found}"
    return version.run_id


def polled(out: str, ended: Event) -> list[str]:
    """What a reader sees that opens all results as often as it can."""
    seen = []
    while not ended.is_set():
        seen.append(look(out))
    return seen


@pytest.mark.faults
def test_a_reader_always_finds_complete_results_of_one_run(tmp_path):
    """Every second one of twelve runs is killed at a random moment."""
    rng = np.random.default_rng(4)
    names = [f"page {number}" for number in range(40)]
    run = write_fake_run(tmp_path / "run", [prevalence_table(names, intervals=True)])
    began = time.perf_counter()
    publish(run, settings_of(0))
    usual, killed, ended = time.perf_counter() - began, 0, Event()
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(polled, run.uri, ended)
        try:
            for number in range(1, 13):
                with started("--publish", run.uri, "--number", str(number)) as child:
                    assert line_of(child.stdout) == "ready"
                    child.stdin.write("go\n")
                    child.stdin.flush()
                    if number % 2:
                        time.sleep(float(rng.uniform(0, usual)))
                        child.kill()
                        killed += child.wait(60) != 0
                        continue
                    _, complaint = child.communicate(timeout=120)
                assert child.returncode == 0, complaint
                rate = f"{settings_of(number).anomalies.rate:.6g}"
                page = Path(run.uri, "report.html").read_text(encoding="utf-8")
                assert rate in page
        finally:
            ended.set()
        seen = reader.result()
    assert killed > 0
    assert len(set(seen)) > 1
    assert len(seen) > 20
    assert verify(run.uri) == []
