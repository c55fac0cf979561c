"""Make ``answers/graphesn.npz``: states of graphesn 0.2.17 on a small graph.

Run with graphesn and its packages torch, torch_geometric, torch_sparse and
torch_scatter installed (none is needed by the tests):

    python tests/reservoir/make_graphesn_answers.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np


def main() -> None:
    """Compute and store."""
    import torch
    from graphesn import StaticGraphReservoir

    rng = np.random.default_rng(7)
    nodes, units, features, updates = 60, 16, 5, 9
    pairs = np.unique(rng.integers(0, nodes, (240, 2)), axis=0)
    x = rng.standard_normal((nodes, features)).astype(np.float32)
    weights = rng.random(len(pairs)).astype(np.float32)
    w_in = rng.uniform(-0.6, 0.6, (units, features)).astype(np.float32)
    w = rng.uniform(-1, 1, (units, units))
    w = (0.25 * w / np.abs(np.linalg.eigvals(w)).max()).astype(np.float32)
    bias = rng.uniform(-0.1, 0.1, units).astype(np.float32)

    # Its K iterations are K + 1 updates.
    reservoir = StaticGraphReservoir(
        1, features, units, bias=True, max_iterations=updates - 1, epsilon=None
    )
    layer = reservoir.layers[0]
    layer.input_weight.data = torch.from_numpy(w_in)
    layer.recurrent_weight.data = torch.from_numpy(w)
    layer.bias.data = torch.from_numpy(bias)
    index = torch.from_numpy(pairs.T.copy())
    states = {}
    for name, edge_weight in (("plain", None), ("weighted", torch.from_numpy(weights))):
        states[name] = reservoir(
            index, torch.from_numpy(x), edge_weight=edge_weight
        ).numpy()
    np.savez(
        Path(__file__).parent / "answers" / "graphesn.npz",
        pairs=pairs,
        features=x,
        weights=weights,
        inputs=w_in,
        recurrent=w,
        bias=bias,
        updates=updates,
        **states,
    )


if __name__ == "__main__":
    main()
