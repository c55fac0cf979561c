"""Against graphesn, at a scale where the map is not chaotic."""

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.reservoir.reference import embed_reference
from xnq_dist.reservoir.weights import Recurrent, Weights


@pytest.mark.parametrize("form", ["plain", "weighted"])
def test_states_equal_graphesns(form):
    """Stored answers, made by `make_graphesn_answers.py`; the Dask path equals the
    twin bit for bit (`test_embed.py`)."""
    file = Path(__file__).parent / "answers" / "graphesn.npz"
    with np.load(file, allow_pickle=False) as arrays:
        stored = dict(arrays)
    nodes = len(stored["features"])
    source, target = stored["pairs"].T
    data = stored["weights"] if form == "weighted" else np.ones_like(stored["weights"])
    adjacency = csr_array((data, (target, source)), shape=(nodes, nodes))
    adjacency.sort_indices()
    weights = Weights(
        stored["inputs"],
        stored["bias"],
        Recurrent(stored["recurrent"]),
    )
    states = embed_reference(
        adjacency, stored["features"], weights, int(stored["updates"])
    )
    np.testing.assert_allclose(states, stored[form], atol=5e-6)
