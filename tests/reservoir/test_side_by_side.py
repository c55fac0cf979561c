"""Several reservoirs together: each equals the single reservoir of its scale."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import small_settings, write_graph
from tests.reservoir.reference import embed_reference
from tests.reservoir.test_embed import embed, embeddings
from tests.reservoir.test_kernels import after, whole_partition
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import SettingsError
from xnq_dist.graph.layout import read_adjacency
from xnq_dist.reservoir.embed import reservoir_spec
from xnq_dist.reservoir.weights import (
    BIAS_SCALE,
    NONZEROS,
    block_seed,
    draw_weights,
    units_of_blocks,
)

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
    adjacency = read_adjacency(run.stage("graph"), manifest)
    blocks = []
    for number, units in enumerate(units_of_blocks(23, 3)):
        weights = draw_weights(
            block_seed(settings.seed, number),
            units,
            graph.features.shape[1],
            matrix=settings.reservoir.matrix,
            nonzeros=min(NONZEROS, units),
            recurrent_scale=SCALES[number],
            input_scale=settings.reservoir.input_scale,
            bias_scale=BIAS_SCALE,
            rho=manifest.facts["rho"],
        )
        blocks.append(embed_reference(adjacency, graph.features, weights, 6))
    for answer in answers:
        np.testing.assert_array_equal(answer, np.concatenate(blocks, axis=1))
    assert run.stage("embeddings").manifest().facts["recurrent_scale"] == [1, 3, 20]


def test_blocks_have_different_weights_and_the_first_the_plain_ones():
    assert block_seed(7, 0) == 7
    assert len({block_seed(7, number) for number in range(5)}) == 5
    assert all(0 <= block_seed(2**63 - 1, number) < 2**63 for number in range(5))


def test_one_scale_in_a_list_is_the_plain_reservoir():
    settings = small_settings()
    plain = reservoir_spec(settings, 2.0, 3.0, 0.5).blocks()
    assert reservoir_spec(settings, 2.0, (3.0,), 0.5).blocks() == plain


def test_columns_of_one_block_stay_in_it():
    rng = np.random.default_rng(0)
    parts = []
    for units in (5, 3):
        values = {"recurrent_scale": 2.0, "input_scale": 1.0, "bias_scale": 0.1}
        drawn = draw_weights(
            units, units, 2, matrix="dense", nonzeros=1, rho=1, **values
        )
        parts.append(drawn.recurrent)
    part, _ = whole_partition()
    states = rng.standard_normal((300, 8)).astype(np.float32)
    drive = rng.standard_normal((300, 8)).astype(np.float32)
    first = after(part, states, drive, parts)
    states[:, 5:] = 0
    second = after(part, states, drive, parts)
    np.testing.assert_array_equal(first[:, :5], second[:, :5])
    assert np.abs(first[:, 5:] - second[:, 5:]).max() > 0.1


def test_more_scales_than_units_are_refused():
    with pytest.raises(SettingsError, match=r"has 3 scales for 2 units"):
        load_settings(
            overrides=["reservoir.dim=2", "reservoir.recurrent_scale=[1, 2, 3]"]
        )
    with pytest.raises(SettingsError, match=r"method = xnq\+ has 4 scales"):
        load_settings(overrides=["reservoir.dim=2", "method=xnq+"])
    plain = load_settings(overrides=["reservoir.dim=2", "method=xnq"])
    assert plain.reservoir.dim == 2
