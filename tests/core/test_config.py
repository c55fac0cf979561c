"""Settings: every error names the key and the allowed values."""

from __future__ import annotations

import doctest
import re
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import yaml

from xnq_dist import plan
from xnq_dist.app.settings_help import GROUPS, group_of, settings_help, settings_rows
from xnq_dist.core import config, stages, threads
from xnq_dist.core.config import (
    load_settings,
    recorded_settings,
    removed_settings,
    validate_settings,
)
from xnq_dist.core.errors import DoesNotFitError, SettingsError
from xnq_dist.core.settings import Settings
from xnq_dist.graph.needs import random_halo
from xnq_dist.groups import detection
from xnq_dist.plan import (
    GraphSize,
    Workers,
    add_up,
    check_client_fits,
    check_fits,
    check_scratch_fits,
)
from xnq_dist.plan.of_tables import estimate_counts
from xnq_dist.reservoir import spectrum
from xnq_dist.selection.scored_rows import model_bytes


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("quality.widths=[.4, .1]", "[0.4, 0.1] descends"),
        ("reservoir.dims=3", "reservoir.dims: unknown setting (did you mean reser"),
        ("reservoir.dim=0", "reservoir.dim = 0: "),
        ("reservoir.dim=many", "reservoir.dim = 'many'"),
        ("reservoir.recurrent_scale=-1", "reservoir.recurrent_scale = -1"),
        ("reservoir.recurrent_scale=nan", "reservoir.recurrent_scale"),
        ("readout.calibration=isotonic", "allowed: bcts, platt"),
        ("input.directed=undirected", "'undirected': allowed: true, false"),
        ("labels.missing=5", "labels.missing = 5: allowed: auto, list of: text"),
        ("reservoir.recurrent_scale=[]", "allowed: number, list of: number, select"),
        ("report.community=[page]", "allowed: text, [text, text]"),
        ("cluster.kind=address", "cluster.kind = address needs cluster.address"),
        ("cluster.address=tcp://x:1", "set cluster.kind = address"),
        ("cluster.memory_limit=lots", "'lots' is not a size"),
        ("input.memory=auto", "input.memory: 'auto' is not a size"),
        ("readout.memory=-2GB", "is not a size"),
        ("readout.memory=auto", "readout.memory: 'auto' is not a size"),
        ("communities=louvain", "communities = 'louvain': allowed: given: from the me"),
        ("quantifier=guess", "no quantifier 'guess': choose one of auto, cc"),
        ("seed=-1", "seed = -1"),
        ("partitions=0", "partitions = 0: must be greater than or equal to 1"),
        ("reservoir=3", "reservoir is a section: name a setting in it (xnq-dist se"),
        ("reservoir", "is not of the form key=value"),
        ("reservoir.dim=[", "the value is not YAML"),
        ("reservoir.dim=" + "[" * 100_000, "the value is not YAML"),
        ("exchange.dtype=float8", "exchange.dtype = 'float8'"),
        ("input.separator=ab", "input.separator"),
        ("input.header=3", "input.header"),
        ("input.decimal=;", "input.decimal"),
    ],
)
def test_bad_setting_is_named(override, message):
    with pytest.raises(SettingsError) as caught:
        load_settings(overrides=[override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_wrong_settings_are_named_in_one_message():
    with pytest.raises(SettingsError, match=r"reservoir\.dim.*; .*sead"):
        load_settings(overrides=["reservoir.dim=0", "sead=1"])


def test_overrides_win_over_the_file(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("seed: 7\nreservoir: {dim: 64, supersteps: 5}\n")
    found = load_settings([file], ["reservoir.dim=32", "columns.features=[a, b]"])
    assert (found.seed, found.reservoir.dim, found.reservoir.supersteps) == (7, 32, 5)
    assert found.columns.features == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("a: [", "is not YAML"),
        ("- 1", "must hold keys and values"),
        ("labels: {drawn: random}\nlabels: {}", "labels: named twice"),
        ("a: " + "[" * 100_000 + "]" * 100_000, "is not YAML"),
        ("a: !!python/object/apply:os.getcwd []", "is not YAML"),
    ],
)
def test_bad_settings_files_are_named(tmp_path, content, message):
    file = tmp_path / "s.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError, match=message):
        load_settings([file])


def test_words_of_a_file_are_as_written_and_later_mappings_replace(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("labels.missing: [off, 01, 1:30, 99.0]\ninput.directed: no\n")
    shares = "labels.prior={yes: 0.4, No: 0.6}"
    found = load_settings([file], ["labels.prior={a: 1}", shares])
    assert found.labels.missing == ("off", "01", "1:30", "99.0")
    assert not found.input.directed
    assert found.labels.prior == {"yes": 0.4, "No": 0.6}


def test_empty_settings_file_is_the_defaults(tmp_path):
    (tmp_path / "s.yaml").write_text("")
    assert load_settings([tmp_path / "s.yaml"]) == Settings()


def test_settings_are_few():
    """Each is used by somebody who can be named; they only get fewer."""
    assert len(settings_rows()) <= 75


def test_settings_are_grouped_by_what_they_are_about():
    groups = [group_of(row[0]) for row in settings_rows()]
    assert list(dict.fromkeys(groups)) == list(GROUPS)
    names = {name for row in settings_rows() for name in (row[0], row[0].split(".")[0])}
    assert {part for parts in GROUPS.values() for part in parts} <= names


@pytest.mark.parametrize("name", removed_settings())
def test_a_removed_setting_is_refused_with_what_became_of_it(name, tmp_path):
    file = tmp_path / "s.yaml"
    value: Any = 1
    for part in reversed(name.split(".")):
        value = {part: value}
    file.write_text(yaml.safe_dump(value))
    gone = f"{name}: this setting is gone: {removed_settings()[name]}"
    with pytest.raises(SettingsError, match=re.escape(gone)):
        load_settings([file])
    with pytest.raises(SettingsError, match=re.escape(gone)):
        load_settings(overrides=[f"{name}=1"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"column": {"label": "y"}},
            "column.label: unknown setting (did you mean columns.label?)",
        ),
        ({"labels__drawn": "random"}, "(did you mean labels.drawn?)"),
        ({"sld": {}}, "sld.tolerance: this setting is gone"),
        ({"odd": {"name": {"x": 1}}}, "odd.name.x: unknown setting"),
    ],
)
def test_an_unknown_setting_is_named(values, message):
    with pytest.raises(SettingsError, match=re.escape(message)):
        validate_settings(values)


def test_every_setting_is_explained():
    rows = settings_rows()
    assert {"reservoir.dim", "quantifier", "cluster.kind"} <= {row[0] for row in rows}
    assert [row[0] for row in rows if not row[3]] == []
    text = settings_help()
    assert "reservoir.matrix = sparse  [dense, sparse]" in text
    assert "readout.C = select  [number, select]" in text


def test_documented_examples_hold():
    for module in (config, plan, threads, spectrum):
        assert doctest.testmod(module).failed == 0


SIZE = GraphSize(nodes=10**6, edges=10**7, features=10)
WORKERS = Workers(count=4, threads=1, memory=8 * 2**30)


DENSE = ["reservoir.dim=512", "reservoir.matrix=dense", "reservoir.supersteps=30"]


def planned(*overrides, size=SIZE, partitions=4):
    settings = load_settings(overrides=[*DENSE, *overrides])
    return add_up(size, settings, partitions, WORKERS)


def test_plan_refuses_with_both_numbers_and_the_setting():
    big = planned("reservoir.dim=4096")
    with pytest.raises(
        DoesNotFitError, match=r"needs .* but may use 8\.0 GiB.*reservoir\.dim"
    ):
        check_fits(big)
    check_fits(planned("reservoir.dim=64", "readout.memory=1 GiB"))


def test_partitions_are_one_for_each_worker():
    four = ["cluster.kind=local", "cluster.workers=4", "cluster.memory_limit=8GiB"]
    settings = load_settings(overrides=four)
    assert estimate_counts(SIZE, settings).partitions == 4
    assert estimate_counts(GraphSize(100, 500, 10), settings).partitions == 1


def test_plan_counts_what_the_stages_after_the_embedding_hold():
    little = "reservoir.dim=1", "reservoir.supersteps=1"

    def memory(*overrides, memberships=None):
        size = replace(SIZE, memberships=memberships)
        return planned("method=xnq", *little, *overrides, size=size).worker_memory

    plain = memory("quantifier=sld")
    # Degree, posteriors, labels and votes of two classes in float64, in every process.
    assert SIZE.nodes * 2 * 24 <= memory("quantifier=nacc") - plain <= SIZE.nodes * 72
    # A model of how labels were chosen, of at most so many nodes.
    assert memory("quantifier=auto") - plain == model_bytes(SIZE.nodes, 2)
    assert model_bytes(10**9, 2) == model_bytes(4 * 10**5, 2) < 2**28
    # Posteriors of two classes of the members of a giant community.
    assert memory(memberships=10**9) - memory(memberships=10**5) >= 2 * 8 * 900_000
    # Kept rounds of the second stage, and what is made of them.
    narrow = planned("reservoir.dim=8", partitions=1)
    assert narrow.worker_memory >= SIZE.nodes * 4 * 2 * 27 + 2**28
    assert narrow.run_disk > planned("method=xnq", "reservoir.dim=8").run_disk


def test_plan_refuses_an_ingest_that_does_not_fit(monkeypatch):
    """METIS and Leiden hold all edges; without them memory follows the nodes."""
    metis = planned("partitioner=metis")
    assert metis.client_memory > 140 * 10**7
    with pytest.raises(DoesNotFitError, match=r"1\.0 GiB are free: set partitioner="):
        check_client_fits(replace(metis, client_limit=2**30))
    stream = planned("partitioner=stream", "input.memory=256 MiB")
    check_client_fits(replace(stream, client_limit=2**30))
    small = ["partitioner=stream", "input.memory=256 MiB"]
    all_edges = f"input.memory={SIZE.edges * stages.LEIDEN_EDGE}"
    exact = load_settings(overrides=["partitioner=stream", all_edges])
    assert add_up(SIZE, exact, 4, WORKERS, detects=True).client_memory > 10**9
    # Streamed, detection stays within input.memory.
    small_plan = add_up(SIZE, load_settings(overrides=small), 4, WORKERS, detects=True)
    check_client_fits(replace(small_plan, client_limit=2**30))
    monkeypatch.setattr(detection, "REFERENCE_EDGES", SIZE.edges)
    scratch = [
        plan.needs["groups"]["scratch"]
        for plan in (small_plan, add_up(SIZE, exact, 4, WORKERS))
    ]
    assert scratch[0] > scratch[1]


def test_plan_refuses_a_disk_that_is_too_small(tmp_path, monkeypatch):
    free = shutil._ntuple_diskusage(2**40, 2**40, 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with pytest.raises(DoesNotFitError, match=r"1\.0 MiB free: set a smaller"):
        check_fits(
            planned("reservoir.dim=64", "readout.memory=1 GiB"), str(tmp_path / "a/b")
        )
    monkeypatch.setattr(detection, "REFERENCE_EDGES", SIZE.edges)
    plan = planned("reservoir.dim=64")
    # Sorted runs of pairs, the sources of the edges, the row pointer, and the decoded
    # tables: two ids an edge, id, label and ten features a node.
    decoded = 8 * (2 * 10**7 // 2 + 12 * 10**6)
    assert plan.scratch_disk == (8 + 4) * 10**7 + 8 * (10**6 + 1) + decoded
    assert dict(plan.lines())["disk, temporary"].startswith("at most ")
    for scratch in (str(tmp_path), None):
        with pytest.raises(DoesNotFitError, match=r"1\.0 MiB free: set scratch"):
            check_scratch_fits(plan, scratch)
    # Whoever writes to it says that it is not there.
    check_scratch_fits(plan, str(tmp_path / "nowhere"))
    little = planned("reservoir.dim=64", size=GraphSize(1000, 10_000, 10))
    check_scratch_fits(little, str(tmp_path))


def test_random_halo_bounds_what_a_random_partition_has():
    rng = np.random.default_rng(0)
    nodes, parts = 2000, 4
    edges = np.unique(rng.integers(0, nodes, (9000, 2)), axis=0)
    part = rng.integers(0, parts, nodes)
    far = part[edges[:, 0]] != part[edges[:, 1]]
    halo = len({(s, part[d]) for s, d in edges[far]})
    bound = random_halo(nodes, len(edges), parts)
    assert halo <= bound <= 1.15 * halo
    assert random_halo(nodes, 100, 1) == 0


@pytest.mark.parametrize("value", [1, 19])
def test_resamples_too_few_for_an_interval_are_refused(value: int) -> None:
    with pytest.raises(SettingsError, match="greater than or equal to 20"):
        load_settings(overrides=[f"intervals.resamples={value}"])
    for enough in (0, 20):
        settings = load_settings(overrides=[f"intervals.resamples={enough}"])
        assert settings.intervals.resamples == enough


def test_recorded_settings_that_this_version_lacks_are_left_out() -> None:
    recorded = load_settings(overrides=["reservoir.dim=64"]).model_dump(mode="json")
    recorded["cluster"]["bandwidth"] = "3 GB"
    recorded["gone"] = {"entirely": True}
    found = recorded_settings(recorded, ["seed=7"])
    assert found == load_settings(overrides=["reservoir.dim=64", "seed=7"])
    with pytest.raises(SettingsError, match="gone"):
        load_settings(base=recorded)
