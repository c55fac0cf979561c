"""A cron run with `deploy/prefect.yaml`, a real Prefect server and a real worker.

`pip check` does not see the faults of Prefect's dependencies that this does: a client
that its own server refuses, scheduled runs that are never created.
"""

from __future__ import annotations

import time

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.server


def test_a_cron_run_happens(deployed):
    end = time.monotonic() + 240
    while not (deployed.run / "published.json").exists():
        assert time.monotonic() < end, "no scheduled run came to its end"
        time.sleep(1)
    deployed.end()
    assert pq.read_table(deployed.run / "prevalence.parquet").num_rows > 0
