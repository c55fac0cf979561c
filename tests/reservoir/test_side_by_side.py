"""Several reservoirs together: each equals the single reservoir of its scale."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import small_settings, write_graph
from tests.reservoir.reference import draw, embed_reference
from tests.reservoir.test_embed import embed, embeddings
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import SettingsError
from xnq_dist.graph.layout import read_adjacency
from xnq_dist.reservoir.embed import reservoir_spec
from xnq_dist.reservoir.weights import block_seed, units_of_blocks

SCALES = (1.0, 3.0, 20.0)


@pytest.mark.parametrize(
    "overrides",
    [("reservoir.matrix=dense",), ()],
    ids=["dense", "sparse"],
)
def test_every_block_is_the_plain_reservoir_of_its_own_seed(
    overrides, tmp_path, thread_client
):
    graph = write_graph(tmp_path / "input", nodes=300, edges=1200)
    wanted = (*overrides, "reservoir.recurrent_scale=[1, 3, 20]", "reservoir.dim=23")
    answers = [
        embeddings(
            embed(tmp_path / cut, graph, thread_client, f"partitions={cut}", *wanted)
        )
        for cut in "13"
    ]
    run = embed(tmp_path / "1", graph, thread_client, "partitions=1", *wanted)
    manifest = run.stage("graph").manifest()
    settings = small_settings(*wanted)
    adjacency = read_adjacency(manifest)
    blocks = []
    for number, units in enumerate(units_of_blocks(23, 3)):
        weights = draw(
            block_seed(settings.seed, number),
            units,
            graph.features.shape[1],
            settings.reservoir.matrix,
            SCALES[number],
            settings.reservoir.input_scale,
            manifest.facts["rho"],
        )
        blocks.append(embed_reference(adjacency, graph.features, weights, 6))
    for answer in answers:
        np.testing.assert_array_equal(answer, np.concatenate(blocks, axis=1))
    assert run.stage("embeddings").manifest().facts["recurrent_scale"] == [1, 3, 20]


def test_one_scale_in_a_list_is_the_plain_reservoir():
    settings = small_settings()
    facts = {"rho": 2.0}
    plain = reservoir_spec(settings, facts, 3.0, 0.5)
    assert reservoir_spec(settings, facts, (3.0,), 0.5) == plain


def test_more_scales_than_units_are_refused():
    with pytest.raises(SettingsError, match=r"has 3 scales for 2 units"):
        load_settings(
            overrides=["reservoir.dim=2", "reservoir.recurrent_scale=[1, 2, 3]"]
        )
    with pytest.raises(SettingsError, match=r"method = xnq\+ has 4 scales"):
        load_settings(overrides=["reservoir.dim=2", "method=xnq+"])
    plain = load_settings(overrides=["reservoir.dim=2", "method=xnq"])
    assert plain.reservoir.dim == 2
