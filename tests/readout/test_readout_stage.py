import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.readout.samples import fit_and_write, fit_readout_arrays, states
from xnq_dist.core import sections
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import (
    DoesNotFitError,
    StageError,
)
from xnq_dist.core.failures import stage_errors
from xnq_dist.core.random_bits import Purpose
from xnq_dist.core.store import RunDirectory
from xnq_dist.readout import rows as rows_module
from xnq_dist.readout import stage as work_module
from xnq_dist.readout.logistic import decision
from xnq_dist.readout.rows import sample_rows
from xnq_dist.readout.saved import flat

NODES, DIM = 700, 10


def graph_labels(classes=3, roles=False):
    """Half of the nodes labelled; with roles a tenth of those without one."""
    x, truth = states(NODES, DIM, classes)
    rng = np.random.default_rng(5)
    labels = np.where(rng.random(NODES) < 0.5, truth, -1)
    role = rng.choice(["train", "train", "calibration"], NODES).astype(object)
    role[(labels < 0) | (rng.random(NODES) < 0.1)] = None
    if not roles:
        role[:] = None
    return x, labels, role


def make_run(folder, parts, x, labels, role, classes=3, dtype="float32", empty=False):
    """The stages graph, labels and embeddings of a run directory, made by hand."""
    run = RunDirectory(folder)
    order = np.random.default_rng(parts).permutation(len(x))
    pieces = [np.sort(piece) for piece in np.array_split(order, parts)]
    if empty:
        pieces.append(np.empty(0, np.int64))
    names = ("graph", "embeddings", "labels")
    graph, embeddings, known = (run.stage(name) for name in names)
    first, second, third = (stage.begin() for stage in (graph, embeddings, known))
    node_files, row_files, label_files = [], [], []
    for number, piece in enumerate(pieces):
        ids = pa.array([f"n{at:05d}" for at in piece], pa.string())
        features = pa.array(np.zeros(len(piece), np.float32))
        nodes = {
            "node_id": ids,
            "index": pa.array(piece),
            "features": pa.FixedSizeListArray.from_arrays(features, 1),
        }
        name = f"nodes-{number:05d}"
        node_files.append(first.write_table(name, pa.table(nodes), "graph_nodes"))
        own = {
            "index": pa.array(piece),
            "label": pa.array(labels[piece].astype(np.int32), mask=labels[piece] < 0),
            "role": pa.array(role[piece], pa.string()),
        }
        name = f"labels-{number:05d}"
        label_files.append(third.write_table(name, pa.table(own), "node_labels"))
        values = pa.array(x[piece].astype(dtype).ravel())
        states_of = pa.FixedSizeListArray.from_arrays(values, x.shape[1])
        table = pa.table({"node_id": ids, "embedding": states_of})
        row_files.append(second.write_table(f"part-{number:05d}", table, "embeddings"))
    facts = {"n_nodes": len(x), "n_edges": 0, "partitions": len(pieces)}
    made = first.commit(node_files, {"parts": parts}, facts)
    of_graph = {"graph": made.fingerprint}
    facts = {
        "classes": ["cat", "dog", "eel", "fox"][:classes],
        "has_roles": any(r is not None for r in role),
        "n_labelled": int((labels >= 0).sum()),
    }
    third.commit(label_files, of_graph, facts)
    facts = {"dim": x.shape[1]}
    second.commit(row_files, of_graph | {"dtype": str(dtype)}, facts)
    return run


def read_posteriors(run):
    """Posteriors and flags by canonical index, read from the files."""
    stage = run.stage("posteriors")
    manifest = stage.manifest()
    nodes = run.stage("graph").manifest().named("nodes-")
    found, flags = [], []
    for record, node in zip(manifest.named("part-"), nodes, strict=True):
        table = stage.read_table(record, "posteriors")
        expected = run.stage("graph").read_table(node, "graph_nodes", ["node_id"])
        assert table["node_id"].equals(expected["node_id"])
        names = [int(name[1:]) for name in table["node_id"].to_pylist()]
        found += list(zip(names, table["posterior"].to_pylist(), strict=True))
        flags += list(zip(names, table["out_of_fold"].to_pylist(), strict=True))
    posterior = np.array([row for _, row in sorted(found)], np.float32)
    return posterior, np.array([flag for _, flag in sorted(flags)])


SETTINGS = load_settings(overrides=["method=xnq", "readout.folds=3", "seed=4"])


def readout_bits(run):
    stage = run.stage("readout")
    (record,) = stage.manifest().named("readout-")
    return stage.read_arrays(record)


def test_same_bits_with_roles_for_any_partitions(tmp_path, thread_client, monkeypatch):
    x, labels, role = graph_labels(roles=True)
    bits, readouts, facts = [], [], []
    monkeypatch.setattr(rows_module, "BATCH", 100)
    for parts in (1, 2, 3):
        run = make_run(tmp_path / str(parts), parts, x, labels, role, empty=parts == 2)
        fit_and_write(run, SETTINGS, thread_client)
        bits.append(read_posteriors(run))
        readouts.append(readout_bits(run))
        facts.append(run.stage("readout").manifest().facts)
    for (posterior, flags), readout, figures in zip(bits, readouts, facts, strict=True):
        np.testing.assert_array_equal(posterior, bits[0][0])
        np.testing.assert_array_equal(flags, bits[0][1])
        assert readout.keys() == readouts[0].keys()
        for name in readout:
            np.testing.assert_array_equal(readout[name], readouts[0][name])
        assert figures == facts[0]
    posterior, flags = bits[0]
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(flags, (labels >= 0) & (role != "train"))


def test_tasks_do_what_the_pure_functions_do(tmp_path, thread_client):
    x, labels, role = graph_labels()
    run = make_run(tmp_path, 2, x, labels, role)
    steps = []
    manifest = fit_and_write(
        run, SETTINGS, thread_client, lambda *step: steps.append(step)
    )
    used = np.flatnonzero(labels >= 0)
    y = labels[used].astype(np.int32)
    rule = SETTINGS.readout, SETTINGS.seed
    saved = fit_readout_arrays(x[used], y, None, 3, *rule, index=used)
    arrays = readout_bits(run)
    for name, values in flat(saved.saved).items():
        np.testing.assert_array_equal(arrays[name], values)
    expected = saved.calibration.apply(decision(saved.model, x))
    # A labelled node keeps the posterior of the models that have not seen its label.
    assert (expected[used] != saved.saved["posteriors"]).any()
    expected[used] = saved.saved["posteriors"]
    np.testing.assert_array_equal(read_posteriors(run)[0], expected)
    facts = run.stage("readout").manifest().facts
    assert facts["skill"] == saved.facts["skill"]
    assert manifest.stage == "posteriors"
    assert manifest.facts["classes"] == ["cat", "dog", "eel"]
    assert manifest.facts["prior"] == saved.facts["prior"]
    assert sum(record.rows for record in manifest.files) == NODES
    finals = {what: (done, total) for what, done, total in steps}
    assert finals.keys() == {"labelled rows", "partitions"}
    assert all(done == total for done, total in finals.values())


def test_class_order_is_in_every_file(tmp_path, thread_client):
    x, labels, role = graph_labels()
    run = make_run(tmp_path, 2, x, labels, role)
    manifest = fit_and_write(run, SETTINGS, thread_client)
    for record in manifest.files:
        with run.stage("posteriors").open_input(record.name) as stream:
            schema = pq.read_schema(stream)
        metadata = schema.metadata
        for named in (metadata, schema.field("posterior").metadata):
            assert json.loads(named[b"classes"]) == ["cat", "dog", "eel"]
        assert metadata[b"xnq_dist.table"] == b"posteriors"


def test_too_little_memory_is_refused_before_any_embedding_is_read(
    tmp_path, thread_client
):
    x, labels, role = graph_labels()
    run = make_run(tmp_path, 2, x, labels, role)
    for record in run.stage("embeddings").manifest().files:
        run.stage("embeddings").write_bytes(record.name, bytes(record.bytes))
    count = int((labels >= 0).sum())
    small = load_settings(overrides=["method=xnq", "readout.memory=20kB"])
    with pytest.raises(DoesNotFitError) as refused:
        fit_and_write(run, small, thread_client)
    message = str(refused.value)
    assert f"{count:,} labelled nodes ({DIM} columns)" in message
    assert f"{count * DIM * 8 / 2**20:.3g} MiB" in message
    assert "readout.memory is 0.0191 MiB: set readout.memory to 1MiB" in message


def test_another_sample_of_the_labels_is_fitted_again(
    tmp_path, thread_client, monkeypatch
):
    x, labels, role = graph_labels(2, False)
    run = make_run(tmp_path, 1, x, labels, role, 2)
    counts = []
    for rows in (10_000, 5_000, 150):
        monkeypatch.setattr(sections, "MAX_ROWS", rows)
        fit_and_write(run, SETTINGS, thread_client)
        readout = run.stage("readout").manifest()
        counts.append((readout.facts["n_fitted"], readout.inputs.get("rows")))
    every = int((labels >= 0).sum())
    assert counts == [(every, None), (every, None), (150, 150)]


def test_memory_for_one_copy_of_the_rows_is_enough():
    labels = np.where(np.arange(3_000) % 2, 0, -1)
    for rows, count in ((1_500, 1_500), (1_499, 1_499), (1_000, 1_000)):
        memory = f"readout.memory={rows * DIM * 8}"
        found = work_module.to_fit(labels, DIM, load_settings(overrides=[memory]))
        assert len(np.unique(found)) == count
        assert (labels[found] == 0).all()


def test_a_sample_of_nodes_depends_on_seed_and_purpose_alone():
    nodes = np.arange(0, 3_000, 3)

    def sample(index, seed=7, purpose=Purpose.SELECTION_ROWS, maximum=100):
        return sample_rows(index, maximum, seed, purpose)

    chosen = sample(nodes)
    assert len(np.intersect1d(chosen, nodes)) == len(chosen) == 100
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(sample(nodes), chosen)
    # Nodes that are not chosen do not matter.
    np.testing.assert_array_equal(sample(np.union1d(chosen, nodes[::5])), chosen)
    assert not np.array_equal(sample(nodes, 8), chosen)
    assert not np.array_equal(sample(nodes, purpose=Purpose.FITTED_ROWS), chosen)
    np.testing.assert_array_equal(sample(nodes, maximum=1_000), nodes)


def test_labels_beyond_the_maximum_are_out_of_fold(
    tmp_path, thread_client, monkeypatch, caplog
):
    """Models are fitted to the same sample for any partitions."""
    monkeypatch.setattr(sections, "MAX_ROWS", 150)
    x, labels, role = graph_labels(2, True)
    posteriors = []
    for parts in (1, 3):
        run = make_run(tmp_path / str(parts), parts, x, labels, role, 2)
        with caplog.at_level("INFO", "xnq_dist.readout.stage"):
            fit_and_write(run, SETTINGS, thread_client)
        posterior, flags = read_posteriors(run)
        posteriors.append(posterior)
    used = sum(r is not None for r in role)
    assert f"models are fitted to 150 of {used} labelled nodes" in caplog.text
    np.testing.assert_array_equal(*posteriors)
    trained, facts = readout_bits(run)["trained"], run.stage("readout").manifest().facts
    assert facts["n_labelled"] == used
    assert 0 < facts["n_fitted"] == len(trained) < 150
    assert (role[trained] == "train").all()
    np.testing.assert_array_equal(
        flags, (labels >= 0) & ~np.isin(np.arange(NODES), trained)
    )


def test_errors_name_what_is_missing_or_mismatched(tmp_path, thread_client):
    x, labels, role = graph_labels()
    with pytest.raises(StageError, match="no complete stage 'graph': run again"):
        fit_and_write(RunDirectory(tmp_path / "none"), SETTINGS, thread_client)
    run = make_run(tmp_path / "run", 2, x, labels, role)
    other = make_run(tmp_path / "other", 3, x, labels, role)
    graph = other.stage("graph").manifest()
    target = run.stage("graph")
    target.delete_folder()
    target.create()
    for name in other.stage("graph").names():
        target.write_bytes(name, other.stage("graph").read_bytes(name))
    assert target.manifest() == graph
    with pytest.raises(StageError, match="embeddings is not of the present graph: run"):
        fit_and_write(run, SETTINGS, thread_client)


def _die(part, local):
    from distributed import KilledWorker

    raise KilledWorker("gather", SimpleNamespace(address="tcp://lost"), 3)


def test_workers_that_die_again_and_again_end_in_one_sentence(
    tmp_path, thread_client, monkeypatch
):
    x, labels, role = graph_labels()
    run = make_run(tmp_path, 1, x, labels, role)
    monkeypatch.setattr(work_module, "gather_rows", _die)
    with (
        pytest.raises(
            DoesNotFitError, match=r"KilledWorker .*: .* lower reservoir.dim"
        ),
        stage_errors(run.uri, "readout"),
    ):
        fit_and_write(run, SETTINGS, thread_client)
