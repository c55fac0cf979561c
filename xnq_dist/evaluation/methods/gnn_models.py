"""GCN, GAT and GIN on one full graph: PyTorch Geometric's layers with sparse products.

The layers are PyTorch Geometric's `GCNConv`, `GATConv` and `GINConv`, including their
parameters and initialisation. Only message passing is replaced by a product with a
sparse matrix, which needs no array of edges x width (a gigabyte for a layer of width
256 on a million edges) and takes a fraction of the time on a CPU. In the first layer
the features are summed before they are projected, which is equal by linearity: once
for GCN and GIN, over fewer columns for GAT.

`xnq_dist.evaluation.methods.gnn` imports this module on use, since it needs the extra
``gnn``.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array
from torch import Tensor, nn

__all__ = ["Adjacency", "GatLayer", "GcnLayer", "GinLayer", "GraphNetwork", "build"]

with warnings.catch_warnings():
    # On import, PyTorch Geometric scripts functions, which PyTorch deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATConv, GCNConv, GINConv

    # Raised once per process, at the first sparse tensor: its layout is in beta state.
    warnings.filterwarnings("ignore", "Sparse CSR tensor support", UserWarning)
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), check_invariants=False)

_initialising = threading.Lock()
"""Lock for PyTorch's process-wide random state."""


class Adjacency:
    """A sparse matrix whose rows are targets, with its transpose for gradients."""

    def __init__(self, matrix: csr_array[Any], device: str = "cpu") -> None:
        n = matrix.shape[0]
        matrix.sort_indices()
        places = np.arange(1, matrix.nnz + 1)
        transposed = csr_array((places, matrix.indices, matrix.indptr), shape=(n, n))
        transposed = transposed.T.tocsr()
        transposed.sort_indices()

        def put(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.array(array)).to(device)

        self.shape = (n, n)
        self._pattern = [
            put(a.astype(np.int64)) for a in (matrix.indptr, matrix.indices)
        ]
        self._transposed_pattern = [
            put(a.astype(np.int64)) for a in (transposed.indptr, transposed.indices)
        ]
        self._order = put(transposed.data - 1)
        weights = put(matrix.data.astype(np.float32))
        self.matrix = self.filled(weights)
        self.transpose = self.transposed(weights)
        targets = np.repeat(np.arange(n), np.diff(matrix.indptr))
        self.offsets, self.sources = self._pattern
        self.targets = put(targets)
        self.edge_index = torch.stack([self.sources, self.targets])
        """Edges as in PyTorch Geometric, in row order, shape (2, M)."""

    def filled(self, values: Tensor) -> Tensor:
        """The matrix with other values, in row order, shape (M,)."""
        return torch.sparse_csr_tensor(
            *self._pattern, values, self.shape, check_invariants=False
        )

    def transposed(self, values: Tensor) -> Tensor:
        """The transpose of `filled`, in CSR format."""
        return torch.sparse_csr_tensor(
            *self._transposed_pattern,
            values.index_select(0, self._order),
            self.shape,
            check_invariants=False,
        )

    @staticmethod
    def plain(
        indptr: NDArray[np.integer], indices: NDArray[np.integer], device: str = "cpu"
    ) -> Adjacency:
        """The graph's adjacency: 1 for every edge."""
        return Adjacency(_ones(indptr, indices), device)

    @staticmethod
    def closed(
        indptr: NDArray[np.integer], indices: NDArray[np.integer], device: str = "cpu"
    ) -> Adjacency:
        """The adjacency of the graph with one self-loop at every node."""
        return Adjacency(_closed(indptr, indices), device)

    @staticmethod
    def normalised(
        indptr: NDArray[np.integer], indices: NDArray[np.integer], device: str = "cpu"
    ) -> Adjacency:
        """The closed adjacency divided by the square roots of both in-degrees.

        References
        ----------
        Kipf and Welling, Semi-supervised classification with graph convolutional
        networks, ICLR 2017, equation 2.
        """
        matrix = _closed(indptr, indices)
        scale = 1.0 / np.sqrt(matrix.sum(axis=1))
        targets = np.repeat(np.arange(len(scale)), np.diff(matrix.indptr))
        matrix.data = matrix.data * scale[targets] * scale[matrix.indices]
        return Adjacency(matrix, device)


def _ones(indptr: NDArray[np.integer], indices: NDArray[np.integer]) -> csr_array[Any]:
    n = len(indptr) - 1
    return csr_array((np.ones(len(indices)), indices, indptr), shape=(n, n))


def _closed(
    indptr: NDArray[np.integer], indices: NDArray[np.integer]
) -> csr_array[Any]:
    n = len(indptr) - 1
    targets = np.repeat(np.arange(n), np.diff(indptr))
    other = indices != targets
    degrees = np.bincount(targets[other], minlength=n)
    open_ = _ones(np.concatenate([[0], np.cumsum(degrees)]), indices[other])
    return (open_ + eye_array(n, format="csr")).tocsr()


class _FixedSum(torch.autograd.Function):
    """Sum over neighbours with fixed weights."""

    @staticmethod
    def forward(ctx: Any, dense: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.adjacency = adjacency
        return adjacency.matrix @ dense

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None]:
        return ctx.adjacency.transpose @ gradient.contiguous(), None


class _WeightedSum(torch.autograd.Function):
    """Sum over neighbours with weights that are learnt."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, dense: Tensor, adjacency: Adjacency
    ) -> Tensor:
        ctx.adjacency = adjacency
        ctx.save_for_backward(values, dense)
        return adjacency.filled(values) @ dense

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        values, dense = ctx.saved_tensors
        gradient = gradient.contiguous()
        pattern = ctx.adjacency.filled(torch.zeros_like(values))
        by_edge = torch.sparse.sampled_addmm(pattern, gradient, dense.t(), beta=0.0)
        by_row = None
        if ctx.needs_input_grad[1]:
            by_row = ctx.adjacency.transposed(values) @ gradient
        return by_edge.values(), by_row, None


class _Attention(torch.autograd.Function):
    """Softmax over each node's neighbours, applied to leaky ReLU of summed scores."""

    @staticmethod
    def forward(
        ctx: Any, sources: Tensor, targets: Tensor, adjacency: Adjacency, slope: float
    ) -> Tensor:
        scores = sources.index_select(0, adjacency.sources)
        scores += targets.index_select(0, adjacency.targets)
        slopes = torch.where(scores > 0, 1.0, slope)
        scores *= slopes
        # Every row has an entry, since each node is a neighbour of itself.
        largest = _by_target(scores, "max", adjacency)
        weights = (scores - largest).exp_()
        weights /= _by_target(weights, "sum", adjacency)
        ctx.adjacency = adjacency
        ctx.save_for_backward(weights, slopes)
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weights, slopes = ctx.saved_tensors
        adjacency = ctx.adjacency
        change = weights * gradient
        change -= weights * _by_target(change, "sum", adjacency)
        change *= slopes
        sources = change.new_zeros(adjacency.shape[0])
        sources.index_add_(0, adjacency.sources, change)
        targets = torch.segment_reduce(change, "sum", offsets=adjacency.offsets)
        return sources, targets, None, None


def _by_target(values: Tensor, reduce: str, adjacency: Adjacency) -> Tensor:
    """Reduce values of edges over each target's row; return the result by edge."""
    rows = torch.segment_reduce(values, reduce, offsets=adjacency.offsets)
    return rows.index_select(0, adjacency.targets)


class GcnLayer(GCNConv):
    """`GCNConv` with a precomputed normalised adjacency."""

    def __init__(
        self, inputs: int, width: int, adjacency: Adjacency, features: Tensor | None
    ) -> None:
        super().__init__(inputs, width, normalize=False)
        self.adjacency = adjacency
        self.summed = None if features is None else adjacency.matrix @ features

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Next rows of all nodes, shape (N, width)."""
        if self.summed is not None:
            return self.lin(self.summed) + self.bias
        return super().forward(x, edge_index)

    def propagate(self, edge_index: Tensor, size: None = None, **given: Any) -> Tensor:
        """Sum of the neighbours' rows ``x``."""
        return _FixedSum.apply(given["x"], self.adjacency)


class GinLayer(GINConv):
    """`GINConv` with a two-layer perceptron, batch normalisation and learnt epsilon."""

    def __init__(
        self, inputs: int, width: int, adjacency: Adjacency, features: Tensor | None
    ) -> None:
        # The batch is the complete graph, so evaluation uses its statistics as well.
        perceptron = nn.Sequential(
            nn.Linear(inputs, width),
            nn.BatchNorm1d(width, track_running_stats=False),
            nn.ReLU(),
            nn.Linear(width, width),
        )
        super().__init__(perceptron, train_eps=True)
        self.adjacency = adjacency
        self.summed = None if features is None else adjacency.matrix @ features

    def propagate(self, edge_index: Tensor, size: None = None, **given: Any) -> Tensor:
        """Sum of the neighbours' rows of ``x[0]``."""
        if self.summed is not None:
            return self.summed
        return _FixedSum.apply(given["x"][0], self.adjacency)


class GatLayer(GATConv):
    """`GATConv` with one head on a precomputed closed neighbourhood."""

    def __init__(
        self, inputs: int, width: int, adjacency: Adjacency, features: Tensor | None
    ) -> None:
        super().__init__(inputs, width, heads=1, add_self_loops=False)
        self.adjacency = adjacency
        self.features = features if inputs <= width else None

    def edge_updater(
        self, edge_index: Tensor, size: None = None, **given: Any
    ) -> Tensor:
        """Attention of each edge from the scores of its two ends, shape (M, 1)."""
        sources, targets = (scores.squeeze(1) for scores in given["alpha"])
        attention = _Attention.apply(
            sources, targets, self.adjacency, self.negative_slope
        )
        return attention.unsqueeze(1)

    def propagate(self, edge_index: Tensor, size: None = None, **given: Any) -> Tensor:
        """Sum of the neighbours' rows of ``x[0]``, weighted by ``alpha``."""
        attention = given["alpha"].squeeze(1)
        if self.features is not None:
            return self.lin(
                _WeightedSum.apply(attention, self.features, self.adjacency)
            )
        dense = given["x"][0].squeeze(1)
        return _WeightedSum.apply(attention, dense, self.adjacency)


class GraphNetwork(nn.Module):
    """Message-passing layers, each with ReLU and dropout, and a linear readout."""

    def __init__(
        self, features: Tensor, layers: list[nn.Module], readout: nn.Linear
    ) -> None:
        super().__init__()
        self.features = features
        self.layers = nn.ModuleList(layers)
        self.readout = readout

    def forward(
        self, dropout: float = 0.0, generator: torch.Generator | None = None
    ) -> Tensor:
        """Logits of all nodes, shape (N, C).

        Parameters
        ----------
        dropout
            Share of hidden values that are set to 0; 0 in evaluation.
        generator
            Random generator of dropout, since PyTorch's dropout can use only the
            process-wide state.
        """
        hidden = self.features
        for layer in self.layers:
            hidden = torch.relu(layer(hidden, layer.adjacency.edge_index))
            if dropout > 0:
                drawn = torch.empty_like(hidden).uniform_(generator=generator)
                hidden = hidden * (drawn >= dropout).to(hidden).div_(1.0 - dropout)
        return self.readout(hidden)


LAYERS = {
    "gcn": (GcnLayer, Adjacency.normalised),
    "gat": (GatLayer, Adjacency.closed),
    "gin": (GinLayer, Adjacency.plain),
}
"""Layer and adjacency of each kind."""


def build(
    kind: str,
    layers: int,
    width: int,
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    features: NDArray[np.float32],
    n_classes: int,
    seed: int,
    device: str = "cpu",
) -> GraphNetwork:
    """Build a network with initial parameters that depend only on the seed.

    Arguments are those of `gnn_logits`.
    """
    layer, adjacency_of = LAYERS[kind]
    adjacency = adjacency_of(indptr, indices, device)
    x = torch.from_numpy(np.array(features, np.float32)).to(device)
    # Parameters are drawn on the CPU, so that they are the same on a GPU.
    with _initialising, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        first = layer(x.shape[1], width, adjacency, x)
        stack = [layer(width, width, adjacency, None) for _ in range(layers - 1)]
        network = GraphNetwork(x, [first, *stack], nn.Linear(width, n_classes))
    return network.to(device)
