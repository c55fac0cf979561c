"""The number of supersteps chosen by `auto`."""

from __future__ import annotations

import numpy as np

from tests.conftest import small_settings, write_graph
from tests.graph.test_distances import diameter as diameter_of
from tests.reservoir.test_embed import embed, embeddings
from xnq_dist import pipeline
from xnq_dist.core.store import RunDirectory
from xnq_dist.graph.layout import read_adjacency
from xnq_dist.graph.prepare import prepare
from xnq_dist.reservoir.context import number_of_supersteps


def test_states_of_auto_are_those_of_its_number(tmp_path, thread_client):
    graph = write_graph(tmp_path / "input", nodes=200, edges=500)
    auto = "reservoir.supersteps=auto", "partitions=2"
    run = embed(tmp_path / "auto", graph, thread_client, *auto)
    manifest = run.stage("graph").manifest()
    adjacency = read_adjacency(manifest)
    diameter = diameter_of(adjacency.toarray())
    assert manifest.facts["effective_diameter"] == diameter
    assert 2 < diameter < 20
    named = f"reservoir.supersteps={diameter + 2}", "partitions=2"
    other = embed(tmp_path / "named", graph, thread_client, *named)
    np.testing.assert_array_equal(embeddings(run), embeddings(other))
    assert "effective_diameter" not in other.stage("graph").manifest().facts
    # The plan has the number once the graph is read, and the maximum before.
    steps = [
        pipeline.estimate(graph.sources, settings).exchanged_bytes
        for settings in (
            small_settings(*auto),
            small_settings("reservoir.supersteps=30", "partitions=2"),
        )
    ]
    assert steps[0] == steps[1]


def test_automatic_length_needs_the_graphs_distances(tmp_path):
    graph = write_graph(tmp_path / "input")
    settings = small_settings()
    manifest = prepare(RunDirectory(tmp_path / "run"), graph.sources, settings, 2)
    auto = small_settings("reservoir.supersteps=auto")
    # Asked for later, the graph is read again.
    again = prepare(RunDirectory(tmp_path / "run"), graph.sources, auto, 2)
    assert again.attempt != manifest.attempt
    diameter = again.facts["effective_diameter"]
    lengths = [number_of_supersteps(auto, each) for each in (diameter, 400, None)]
    assert lengths == [min(diameter + 2, 30), 30, 30]
    assert number_of_supersteps(settings, None) == 6
