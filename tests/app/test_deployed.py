"""What a flow run has beyond its parameters."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from xnq_dist.core.config import load_settings, merged
from xnq_dist.core.errors import InfrastructureError, InputError
from xnq_dist.monitor import attempts, on_prefect


def test_settings_are_merged_key_by_key_and_layers_stay_as_they_are():
    base = {"seed": 0, "reservoir": {"dim": 64, "rho": 2.0}}
    over = {"reservoir": {"dim": 32}, "cluster": {"workers": 1}}
    found = merged(base, over, {"cluster": {"workers": 2}})
    reservoir = {"dim": 32, "rho": 2.0}
    assert found == {"seed": 0, "reservoir": reservoir, "cluster": {"workers": 2}}
    assert base == {"seed": 0, "reservoir": {"dim": 64, "rho": 2.0}}


def test_outside_a_deployment_settings_are_those_given():
    given = load_settings(overrides=["seed=3"])
    assert on_prefect.deployed_settings(given) is given
    assert on_prefect.deployed_settings(None) == load_settings()


def test_a_run_that_lost_its_infrastructure_starts_again(caplog):
    lost = InfrastructureError
    left = [lost("worker w1 was lost"), lost("worker w2 was lost")]

    def work():
        if left:
            raise left.pop(0)
        return "done"

    assert attempts.repeated(work, retries=2, delay=0) == "done"
    assert "worker w1 was lost; starting again in 0 s (1 of 2)" in caplog.text
    left = [lost("a"), lost("b"), lost("c")]
    with pytest.raises(lost, match="c"):
        attempts.repeated(work, retries=2, delay=0)


def test_bad_input_ends_a_run_at_once():
    calls = []

    def work():
        calls.append(1)
        raise InputError("nodes.parquet has no column 'label'")

    with pytest.raises(InputError):
        attempts.repeated(work, retries=2, delay=0)
    assert calls == [1]


def test_a_flow_run_is_started_four_times_at_most(monkeypatch):
    flow_run = SimpleNamespace(run_count=on_prefect.STARTS)
    context = SimpleNamespace(get=lambda: SimpleNamespace(flow_run=flow_run))
    monkeypatch.setattr(on_prefect, "FlowRunContext", context)
    on_prefect.check_starts()
    flow_run.run_count += 1
    with pytest.raises(InfrastructureError, match="started 4 times"):
        on_prefect.check_starts()


def _deaf():
    attempts.CLEANUP = 0.1
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    with attempts.limited(0.1):
        time.sleep(3600)


def test_a_process_that_cannot_be_interrupted_ends_as_well():
    process = multiprocessing.get_context("spawn").Process(target=_deaf)
    process.start()
    process.join(120)
    assert process.exitcode == InfrastructureError.exit_code


def test_a_run_within_its_time_and_one_without_a_limit_complete():
    before = threading.active_count()
    with attempts.limited(None), attempts.limited(60):
        pass
    time.sleep(0.1)
    assert threading.active_count() <= before
