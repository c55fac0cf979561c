"""Costs of work: whose they are, and what settings change in them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from tests.conftest import small_settings
from xnq_dist import pipeline
from xnq_dist.app import doctor
from xnq_dist.app.cli import main
from xnq_dist.core import cluster
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.limits import processor_name
from xnq_dist.evaluation.bench.runner import Report
from xnq_dist.plan import GraphSize, Workers, add_up
from xnq_dist.plan.unit_costs import ETHERNET, VARIABLE, load_costs, own_costs

SIZE = GraphSize(10**6, 10**7, 8, 2, labelled=10**4)
COSTS = replace(load_costs(), wire=1e-10)
"""With traffic on one machine that costs less than on a network."""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's folder without costs."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def write(path, **changed):
    path.parent.mkdir(exist_ok=True)
    values = asdict(replace(COSTS, **changed))
    path.write_text(json.dumps({"costs": values, "machine": {}}))


def supersteps(*overrides, hosts=False, device=0):
    """Seconds of the supersteps with 64 workers, and the source of the costs."""
    workers = Workers(64, 1, 2**34, device, hosts=hosts)
    settings = load_settings(overrides=overrides)
    plan = add_up(SIZE, settings, 64, workers, costs=COSTS)
    return plan.stages["supersteps"], plan.basis


def test_traffic_between_hosts_takes_the_time_of_their_network():
    here, basis = supersteps()
    assert basis == COSTS.basis
    far, basis = supersteps(hosts=True)
    assert "10 Gigabit Ethernet" in basis
    assert far > here
    slow, basis = supersteps("cluster.bandwidth=0.625 GB")
    assert "cluster.bandwidth" in basis
    wire = max(COSTS.wire, 1 / ETHERNET)
    part = (far - here) / (wire - COSTS.wire)
    assert slow - far == pytest.approx(part * (2 / ETHERNET - wire))
    # A set bandwidth holds between hosts, too; workers are no faster than measured.
    assert supersteps("cluster.bandwidth=0.625 GB", hosts=True) == (slow, basis)
    assert supersteps("cluster.bandwidth=1 TB")[0] == here


def test_more_workers_than_this_machine_holds_are_on_several_hosts():
    def basis(*overrides):
        settings = load_settings(overrides=["cluster.memory_limit=8GiB", *overrides])
        return pipeline.estimate_counts(SIZE, settings).basis

    assert "10 Gigabit Ethernet" in basis("cluster.workers=4096")
    local = ("cluster.workers=4096", "cluster.kind=local")
    assert "10 Gigabit Ethernet" not in basis(*local)
    assert "10 Gigabit Ethernet" in basis("cluster.kind=slurm", "cluster.workers=2")
    # GPUs are those of one machine.
    assert "10 Gigabit Ethernet" not in basis("cluster.workers=8", "backend=gpu")


def test_tiles_cross_between_gpu_and_host():
    device = 2**36
    whole, basis = supersteps(device=device)
    assert "never measured" in basis
    tiled, _ = supersteps("reservoir.tile=64", device=device)
    # A node's states three times in float32, its drive and its sums, at 25 GB/s.
    moved = 8 * 10**6 * 256 * 20 / 64 / 2.5e10
    assert tiled - whole > moved
    assert supersteps("reservoir.tile=64")[0] == supersteps()[0]


@pytest.mark.parametrize("asked", ["backend=gpu", "cluster.kind=cuda"])
def test_settings_that_need_a_gpu_plan_one(asked):
    settings = load_settings(overrides=["cluster.memory_limit=64GiB", asked])
    plan = pipeline.estimate_counts(SIZE, settings)
    assert plan.device_memory > 0
    assert plan.extrapolated
    assert plan == pipeline.estimate_counts(SIZE, settings, "gpu")
    with pytest.raises(SettingsError, match="need GPUs: leave --device cpu out"):
        pipeline.estimate_counts(SIZE, settings, "cpu")


def test_tables_are_planned_for_gpus_that_are_there_or_set(small_graph):
    for kind in ("single", "local"):
        settings = small_settings("backend=gpu", f"cluster.kind={kind}")
        with pytest.raises(SettingsError, match=r"no GPU .* set cluster\.device_mem"):
            pipeline.estimate(small_graph.sources, settings)
    there = small_settings("backend=gpu", "cluster.device_memory=60GiB")
    plan = pipeline.estimate(small_graph.sources, there)
    assert plan.device_limit == 60 * 2**30
    assert "never measured" in plan.basis


def test_the_faster_of_one_process_and_workers_is_chosen(home, monkeypatch):
    monkeypatch.setattr(cluster, "free_memory", lambda: 2**36)

    def choice(*overrides, **changed):
        write(own_costs(), **changed)
        plan = pipeline.estimate_counts(SIZE, load_settings(overrides=overrides))
        return plan.workers, dict(plan.lines())["chosen"]

    many = ("cluster.workers=4", "cluster.memory_limit=8GiB")
    assert choice(*many) == (4, "4 worker processes, set by cluster.workers")
    workers, why = choice(start=10.0**9)
    assert workers == 1
    assert why.startswith("one process, since planned times are ")
    # Reading embeddings is the work that a process does on one thread.
    workers, why = choice(start=0.0, read=1.0)
    assert workers > 1
    assert "worker processes, since planned times are" in why
    workers, why = choice("cluster.memory_limit=600MiB")
    assert "one process would need" in why


def test_a_machines_own_costs_are_used(home, monkeypatch):
    packaged = load_costs()
    path = own_costs()
    assert path.parent == home / "xnq-dist"
    write(path, basis="measured here", fixed=7.0)
    assert (load_costs().basis, load_costs().fixed) == ("measured here", 7.0)
    plan = add_up(SIZE, load_settings(), 1, Workers(1, 1, 2**34))
    assert dict(plan.lines())["costs"] == "measured here"
    # Machines that share the folder have files of their own.
    monkeypatch.setattr("xnq_dist.plan.unit_costs.processor_name", lambda: "Other 9")
    assert own_costs().name == "costs-other-9.json"
    assert load_costs() == packaged
    elsewhere = home / "elsewhere.json"
    monkeypatch.setenv(VARIABLE, str(elsewhere))
    write(elsewhere, basis="chosen")
    assert load_costs().basis == "chosen"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "cannot be read"),
        ("[]", "lacks costs"),
        ('{"costs": {"fixed": 1}}', "lacks costs"),
        (None, "cannot be read"),
    ],
)
def test_a_fault_of_the_costs_is_one_sentence(home, monkeypatch, capsys, text, fault):
    path = home / "mine.json"
    monkeypatch.setenv(VARIABLE, str(path))
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=fault):
        load_costs()
    with pytest.raises(SystemExit) as ended:
        main(["estimate", "--nodes", "1e6", "--edges", "1e7"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert "xnq-dist doctor --calibrate" in line


def test_costs_that_are_no_numbers_are_refused(home):
    path = own_costs()
    write(path)
    values = json.loads(path.read_text())
    for wrong in ("much", -1.0, None):
        values["costs"]["edge"] = wrong
        path.write_text(json.dumps(values))
        with pytest.raises(InputError, match="lacks costs"):
            load_costs()


def test_doctor_calibrates_and_says_whose_costs_are_used(home, monkeypatch):
    asked = []

    def measured(names, size, repeat):
        asked.append((*names, size))
        record = {"costs": asdict(replace(COSTS, basis="just now")), "machine": {}}
        return Report(size, {}, files={"costs.json": json.dumps(record).encode()})

    monkeypatch.setattr(doctor, "run_benchmarks", measured)
    before = doctor._costs()
    assert before.state == "note"
    assert "doctor --calibrate" in before.text
    assert doctor.calibrate_costs() == own_costs()
    assert asked == [("costs", "full")]
    assert load_costs().basis == "just now"
    assert doctor._costs().state == "ok"
    own_costs().write_text("{")
    assert doctor._costs().state == "fault"


def test_the_processor_has_a_name():
    assert processor_name()
