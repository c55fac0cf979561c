"""Readouts of more labelled rows than `readout.memory` holds."""

import os

import numpy as np
import pytest

from tests.readout.samples import fit_and_write
from tests.readout.test_readout_stage import (
    DIM,
    graph_labels,
    make_run,
    read_posteriors,
    readout_bits,
    threads_client,
)
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import DamagedError, DoesNotFitError
from xnq_dist.readout import objective, spilled

__all__ = ["threads_client"]

WHOLE = ["method=xnq", "readout.folds=3", "seed=4"]
BEYOND = load_settings(overrides=[*WHOLE, "readout.memory=10kB"])


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    monkeypatch.setattr(objective, "GROUP_ROWS", 100)
    monkeypatch.setattr(objective, "BLOCK_VALUES", 64 * DIM)


@pytest.mark.parametrize(
    ("with_roles", "classes"), [(False, 3), (True, 2)], ids=["cross-fit", "roles"]
)
def test_rows_in_files_give_the_same_bits_as_rows_in_memory(
    tmp_path, threads_client, with_roles, classes
):
    x, labels, role = graph_labels(classes, with_roles)
    within = make_run(tmp_path / "within", 2, x, labels, role, classes)
    fit_and_write(within, load_settings(overrides=WHOLE), threads_client)
    expected, flags = read_posteriors(within)
    expected_bits = readout_bits(within)
    for parts in (1, 3):
        run = make_run(tmp_path / str(parts), parts, x, labels, role, classes)
        fit_and_write(run, BEYOND, threads_client)
        posterior, out_of_fold = read_posteriors(run)
        np.testing.assert_array_equal(posterior, expected)
        np.testing.assert_array_equal(out_of_fold, flags)
        for name, values in readout_bits(run).items():
            np.testing.assert_array_equal(values, expected_bits[name])
        facts = run.stage("readout").manifest().facts
        assert facts["converged"]
        assert facts["dim"] == DIM
        assert facts["C"] == within.stage("readout").manifest().facts["C"]
        names = run.stage("readout").folder.names()
        assert not [name for name in names if name.endswith(".rows")]


def test_a_set_strength_with_roles_needs_no_fold(tmp_path, threads_client):
    x, labels, role = graph_labels(2, roles=True)
    given = [*WHOLE, "readout.C=1"]
    posteriors = []
    for name, memory in (("within", []), ("beyond", ["readout.memory=10kB"])):
        run = make_run(tmp_path / name, 2, x, labels, role, 2)
        fit_and_write(run, load_settings(overrides=[*given, *memory]), threads_client)
        posteriors.append(read_posteriors(run)[0])
        assert run.stage("readout").manifest().facts["folds"] == 0
    np.testing.assert_array_equal(*posteriors)


def test_memory_below_one_group_is_refused(tmp_path, threads_client):
    x, labels, role = graph_labels()
    run = make_run(tmp_path, 1, x, labels, role)
    settings = load_settings(overrides=[*WHOLE, "readout.memory=5kB"])
    with pytest.raises(DoesNotFitError, match="embeddings of 100 labelled nodes"):
        fit_and_write(run, settings, threads_client)


def test_truncated_groups_are_damage(tmp_path, threads_client, monkeypatch):
    x, labels, role = graph_labels()
    run = make_run(tmp_path, 1, x, labels, role)
    write = spilled._write_group

    def cut(*args):
        group = write(*args)
        os.truncate(group.folder.path(group.record.name), group.record.bytes - 4)
        return group

    monkeypatch.setattr(spilled, "_write_group", cut)
    with pytest.raises(DamagedError, match=r"group-\d+-.* bytes, not"):
        fit_and_write(run, BEYOND, threads_client)
