"""Folds, positive classes and label shares of tasks, and error messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import small_settings, write_graph
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.store import RunDirectory
from xnq_dist.evaluation.protocol import ROLES
from xnq_dist.evaluation.task import TaskSource, load_task
from xnq_dist.graph.prepare import prepare

NODES = 240


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    graph = write_graph(folder, nodes=NODES, edges=600, classes=3, labelled=1.0)
    run = RunDirectory(folder / "run")
    prepare(run, graph.sources, small_settings(), 2)
    return run, graph


def write_splits(path, labels, change=None):
    rng = np.random.default_rng(0)
    rows = {"node_id": [], "fold": [], "role": []}
    for fold in (0, 1):
        roles = np.array(ROLES)[np.arange(NODES) % 4]
        for label in range(3):
            members = np.flatnonzero(labels == label)
            roles[members] = np.array(ROLES)[np.arange(len(members)) % 4]
        rows["node_id"] += list(range(NODES))
        rows["fold"] += [fold] * NODES
        rows["role"] += roles.tolist()
    order = rng.permutation(len(rows["fold"]))
    table = {name: [values[i] for i in order] for name, values in rows.items()}
    if change:
        change(table)
    pq.write_table(pa.table(table), path)
    return str(path)


@pytest.fixture
def path(made, tmp_path):
    """Splits of two folds."""
    return write_splits(tmp_path / "s.parquet", made[1].labels)


def test_roles_and_labels_are_those_of_the_tables(made, path):
    run, graph = made
    task = load_task(run, TaskSource("a", path), 0)
    np.testing.assert_array_equal(task.labels, graph.labels)
    assert [split.fold for split in task.splits] == [0, 1]
    table = pq.read_table(path).to_pylist()
    for row in table[:50]:
        found = task.roles[row["fold"], row["node_id"]]
        assert ROLES[found] == row["role"]
    shown = task.known(0, "train")
    train = task.roles[0] == 0
    np.testing.assert_array_equal(shown[train], graph.labels[train])
    assert (shown[~train] == -1).all()


def test_positive_class_is_told_from_the_rest(made, path):
    run, graph = made
    task = load_task(run, TaskSource("a", path, "2"), 0)
    assert task.classes == ("not 2", "2")
    np.testing.assert_array_equal(task.labels, (graph.labels == 2).astype(int))
    with pytest.raises(InputError, match=r"'9' is not a class: choose one of 0, 1, 2"):
        load_task(run, TaskSource("a", path, "9"), 0)


def test_folds_are_chosen_and_unknown_ones_refused(made, path):
    run, _ = made
    task = load_task(run, TaskSource("a", path, folds=(1,)), 0)
    assert [split.fold for split in task.splits] == [1]
    with pytest.raises(SettingsError, match="no fold 7: choose from 0, 1"):
        load_task(run, TaskSource("a", path, folds=(7,)), 0)


def test_smaller_shares_keep_some_of_the_labels_of_larger_ones(made, path):
    run, _ = made
    source = TaskSource("a", path, folds=(0,), label_shares=(1.0, 0.5, 0.1))
    task = load_task(run, source, 0)
    whole, half, tenth = (set(task.rows(s, "train").tolist()) for s in range(3))
    assert tenth < half < whole
    for split, share in enumerate((1.0, 0.5, 0.1)):
        for label in range(3):
            train = task.labels[task.rows(split, "train")] == label
            all_of_them = (task.labels[sorted(whole)] == label).sum()
            assert train.sum() == max(2, np.ceil(share * all_of_them))
    for role in ("validation", "test"):
        np.testing.assert_array_equal(task.rows(2, role), task.rows(0, role))
    with pytest.raises(SettingsError, match="label-shares 0 is out of range"):
        load_task(run, TaskSource("a", path, label_shares=(0.0,)), 0)


def replace_role(old, new):
    def change(table):
        table["role"] = [new if role == old else role for role in table["role"]]

    return change


def unknown_node(table):
    table["node_id"][5] = 10_000


def twice(table):
    at = [i for i, fold in enumerate(table["fold"]) if fold == 0]
    table["node_id"][at[0]] = table["node_id"][at[1]]


def no_class_in_test(table):
    for i, role in enumerate(table["role"]):
        if role == "test" and table["node_id"][i] in no_class_in_test.members:
            table["role"][i] = "train"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (replace_role("test", "exam"), "role 'exam' in row .* is not one of train"),
        (
            replace_role("test", "train"),
            "fold 0 has no test node of class '0': use folds",
        ),
        (unknown_node, "node 10000 in row 5 is not in the node table"),
        (twice, "two rows for one fold"),
        (no_class_in_test, "fold 0 has no test node of class '1'"),
    ],
)
def test_tables_of_splits_that_do_not_fit_are_refused(made, tmp_path, change, words):
    run, graph = made
    no_class_in_test.members = set(np.flatnonzero(graph.labels == 1).tolist())
    path = write_splits(tmp_path / "s.parquet", graph.labels, change=change)
    with pytest.raises(InputError, match=words):
        load_task(run, TaskSource("a", path), 0)


def test_a_role_without_a_label_is_refused(tmp_path):
    graph = write_graph(tmp_path, nodes=NODES, edges=600, classes=3, labelled=0.9)
    run = RunDirectory(tmp_path / "run")
    prepare(run, graph.sources, small_settings(), 1)
    path = write_splits(tmp_path / "s.parquet", graph.labels)
    with pytest.raises(InputError, match="has a role but no label"):
        load_task(run, TaskSource("a", path), 0)
