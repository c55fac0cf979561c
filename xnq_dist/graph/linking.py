"""Draws the edges of the synthetic network; `planted` describes the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Floats, Ints
from xnq_dist.core.random_bits import stream
from xnq_dist.graph.planted import EDGES, PlantedNetwork

__all__ = ["draw_edges"]


EDGE_BLOCK = 1 << 19
"""Expected number of edges of one random stream."""
LOCALITY = 4.0
ROUNDS, LOCAL_ROUNDS = 8, 3
"""Maximum number of attempts to replace a duplicate edge, and those with locality."""


@dataclass(frozen=True)
class _Linking:
    """Distribution of the other end of an edge, by the group of the emitting node."""

    stubs: Floats
    """Edges a node emits for each ticket, by class, (C,)."""
    equal: Floats
    """Probability that the other end has the emitter's class, by group."""
    other: Floats
    """Cumulative probabilities of the other classes, row c plus c, flat (C * C,)."""
    local: Floats
    """Probability that an end in a group is drawn from the emitter's home."""


def _linking(network: PlantedNetwork) -> _Linking:
    arguments, blocks = network.arguments, network.blocks
    classes = arguments.classes
    p = np.diff(network.by_class[1]) / arguments.nodes
    same, pair = p**2, np.outer(p, p)
    np.fill_diagonal(pair, 0)
    joint = (1 - arguments.homophily) * pair / pair.sum()
    joint[np.diag_indices(classes)] = arguments.homophily * same / same.sum()
    ends = joint.sum(axis=1)
    weight = np.diff(network.group).reshape(classes, blocks).astype(np.float64)
    per_class = weight.sum(axis=1)
    stubs = arguments.nodes * arguments.degree / 2 * ends / per_class
    equal = np.repeat((joint.diagonal() / ends)[:, None], blocks, axis=1)
    if 0 < arguments.homophily < 1:
        emitted = weight * stubs[:, None]
        emitted /= emitted.sum()
        equal = _with_taste(equal, network.taste, emitted, arguments.homophily)
    pair_sums = np.cumsum(pair, axis=1)
    other = pair_sums / pair_sums[:, -1:] + np.arange(classes)[:, None]
    near = LOCALITY * blocks * weight
    return _Linking(
        stubs=stubs,
        equal=equal.ravel(),
        other=other.ravel(),
        local=(near / (near + per_class[:, None])).ravel(),
    )


def _with_taste(
    equal: Floats, taste: Floats, emitted: Floats, homophily: float
) -> Floats:
    """Shift log-odds by each home's taste and by a constant so that the mean is H."""
    log_odds = np.log(equal / (1 - equal)) + taste
    low, high = -40.0, 40.0
    for _ in range(80):  # bisection: the mean grows with the constant
        middle = (low + high) / 2
        shifted = 1 / (1 + np.exp(-(log_odds + middle)))
        if float((shifted * emitted).sum()) > homophily:
            high = middle
        else:
            low = middle
    return shifted


def draw_edges(network: PlantedNetwork) -> Iterator[tuple[Ints, Ints]]:
    """Yield edges by blocks of emitting nodes: (src, dst).

    A block has complete homes: most duplicates are pairs within a home, and these are
    detected within one block.
    """
    arguments, blocks = network.arguments, network.blocks
    total, classes = arguments.nodes, arguments.classes
    linking = _linking(network)
    order, homes = network.by_home
    step = max(1, int(EDGE_BLOCK * 2 / arguments.degree))
    cuts = np.unique(homes[1:] // step, return_index=True)[1]
    bounds = sorted({0, total, *homes[1:][cuts[1:]].tolist()})
    for block, (first, last) in enumerate(pairwise(bounds)):
        rng = stream(arguments.seed, EDGES, block)
        nodes = order[first:last]
        label = network.label[nodes].astype(np.int64)
        expected = linking.stubs[label] * network.propensity[nodes]
        stubs = np.floor(expected + rng.random(len(nodes))).astype(np.int64)
        src = np.repeat(nodes, stubs)
        source_class = np.repeat(label, stubs)
        source_home = np.repeat(network.home[nodes], stubs)
        equal = linking.equal[source_class * blocks + source_home]
        drawn = np.searchsorted(
            linking.other, source_class + rng.random(len(src)), side="right"
        )
        drawn = np.minimum(drawn - source_class * classes, classes - 1)
        target_class = np.where(rng.random(len(src)) < equal, source_class, drawn)
        # Pack the two ends into one integer, so that sorting finds duplicates.
        bits = max(total - 1, 1).bit_length()
        keys = np.empty(0, np.int64)
        for attempt in range(ROUNDS):
            near = linking.local * (attempt < LOCAL_ROUNDS)
            dst = _draw_ends(network, near, rng, target_class, source_home)
            # Shift instead of multiplying: a division would take longer than a draw.
            pairs = np.minimum(src, dst) << bits | np.maximum(src, dst)
            keys = np.sort(np.concatenate([keys, pairs]))
            bad = np.zeros(len(keys), np.bool_)
            bad[1:] = keys[1:] == keys[:-1]
            low, high = _ends(keys, bits)
            bad |= low == high
            if not bad.any():
                break
            # Draw again with the same two classes, so that H stays the same.
            src, lost = low[bad], high[bad]
            target_class = network.label[lost].astype(np.int64)
            source_home = network.home[src]
            keys = keys[~bad]
        low, high = _ends(keys, bits)
        turned = rng.random(len(keys)) < 0.5
        yield np.where(turned, high, low), np.where(turned, low, high)


def _draw_ends(
    network: PlantedNetwork,
    near: Floats,
    rng: np.random.Generator,
    target_class: Ints,
    home: NDArray[np.integer],
) -> Ints:
    """Nodes of the target classes, by propensity; at home with probability `near`."""
    blocks = network.blocks
    group = target_class * blocks + home
    local = rng.random(len(target_class)) < near[group]
    first = network.group[np.where(local, group, target_class * blocks)]
    last = network.group[np.where(local, group + 1, (target_class + 1) * blocks)]
    at = first + (rng.random(len(target_class)) * (last - first)).astype(np.int64)
    return network.tickets[at].astype(np.int64)


def _ends(pairs: Ints, bits: int) -> tuple[Ints, Ints]:
    return pairs >> bits, pairs & ((1 << bits) - 1)
