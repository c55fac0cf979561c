"""The model of a synthetic social network with known classes, in bounded memory.

A planted-community network; its features, edges and communities are drawn from streams
keyed by (seed, purpose, block), so the bits depend on the arguments alone.

- **Home.** Every node belongs to one of about ``sqrt(nodes) / 2`` home blocks whose
  sizes follow a log-normal law. Each block has its own class proportions, feature
  offsets and taste in linking.
- **Class.** Network-wide proportions fall geometrically from the first class to the
  last, in the ratio .8 : .2 (two classes: 80 % and 20 %). Blocks scatter around them
  (Dirichlet), raked so that the network's proportions stay as stated.
- **Degree.** A node's weight is a whole number from a power law of exponent 2.5.
- **Homophily** H is the probability that an edge joins two nodes of one class. The
  classes (c, d) of an edge's two ends are drawn in proportion to ``p_c p_d``, scaled
  so that equal pairs get H and unequal pairs 1 - H. If H is below ``sum p_c^2`` (the
  value for links independent of class), the network is heterophilic; rare classes then
  necessarily have larger degrees. Blocks differ in their probability of an equal pair;
  the mean over the network is H.
- **Locality.** The other end is drawn from the emitter's home block with odds of
  `LOCALITY` times the block's share of the required class over its mean share, else
  from all nodes.
- **Features.** Class mean + offset of the home block + unit noise. Class means are
  about `CLASS_DISTANCE` apart; block offsets lie mostly in the space of the class
  means, where they make classification harder.
- **Communities** overlap and have power-law sizes. Members come mostly from one home
  block, whose class proportions, features and linking all differ from the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, offsets_of
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.random_bits import stream

__all__ = [
    "Arguments",
    "PlantedNetwork",
    "draw_edges",
    "draw_features",
    "draw_members",
    "draw_network",
]

NODE_BLOCK = 1 << 14
"""Nodes whose features are drawn from one stream."""
EDGE_BLOCK = 1 << 19
"""Expected number of edges of one stream."""
CLASS_RATIO = 0.2 / 0.8
BLOCK_CONCENTRATION = 4.0
"""Dirichlet concentration of a block's class proportions: smaller is more varied."""
CLASS_DISTANCE = 2.0
OFFSET_IN_CLASS_SPACE = 1.0
OFFSET_ELSEWHERE = 0.3
LOCALITY = 4.0
ROUNDS, LOCAL_ROUNDS = 8, 3
"""Maximum number of attempts to replace a duplicate edge, and those with locality."""
HOME_SHARE = 0.9
"""Share of a community's members that come from its home block."""
SMALLEST_COMMUNITY = 20
LARGEST_SHARE = 0.04
LABELLED_AT_LEAST = 10

_NODES, _FEATURES, _EDGES, _COMMUNITIES = range(4)


@dataclass(frozen=True)
class Arguments:
    """The size and the shape of a network."""

    nodes: int
    degree: float
    """Mean degree. A very dense network may have fewer edges, because too few pairs
    with the required classes are left."""
    features: int
    """Number of columns."""
    classes: int
    homophily: float
    """Probability that an edge joins two nodes of one class."""
    communities: int
    seed: int
    labelled: float = 0.1
    """Share of labelled nodes; at least ten nodes of each class are labelled."""
    string_ids: bool = False
    """Ids as text instead of integers."""

    def check(self) -> None:
        """Check the arguments; a `SettingsError` names all that are out of range."""
        nodes = self.nodes
        rules = {
            "nodes": (10 <= nodes < 2**31, "between 10 and 2^31 - 1"),
            "degree": (0 < self.degree < nodes, f"above 0 and below nodes = {nodes}"),
            "features": (self.features >= 1, "at least 1"),
            "classes": (
                2 <= self.classes <= min(nodes // 4, 1000),
                f"at least 2, and at most 1000 and a quarter of nodes = {nodes}",
            ),
            "homophily": (0 <= self.homophily <= 1, "between 0 and 1"),
            "communities": (self.communities >= 1, "at least 1"),
            "seed": (0 <= self.seed < 2**63, "between 0 and 2^63 - 1"),
            "labelled": (0 < self.labelled <= 1, "above 0 and at most 1"),
        }
        faults = [
            f"{name} = {getattr(self, name)} must be {words}"
            for name, (holds, words) in rules.items()
            if not holds
        ]
        if faults:
            raise SettingsError("generate: " + "; ".join(faults))


@dataclass(frozen=True)
class PlantedNetwork:
    """The nodes as 1-D arrays, and the tables of the blocks."""

    arguments: Arguments
    home: Ints
    label: Ints
    labelled: Bools
    weight: Ints
    """Expected degrees are in proportion to it, within a class."""
    tickets: Ints
    """Each node repeated by its weight, ordered by (class, home)."""
    group: Ints
    """Bounds in `tickets` of group ``class * blocks + home``, (C * blocks + 1,)."""
    by_home: Ints
    """Nodes ordered by home."""
    homes: Ints
    """The bounds of each home in `by_home`, (blocks + 1,)."""
    means: Floats
    """Feature means of the classes, (C, F)."""
    offsets: Floats
    """Feature offsets of the homes, (blocks, F)."""
    taste: Floats
    """Of each home for equal pairs, between -.5 and .5, (blocks,)."""


def draw_network(arguments: Arguments) -> PlantedNetwork:
    """Home, class and weight of every node, and the tables of the blocks."""
    total, classes = arguments.nodes, arguments.classes
    blocks = max(2, round(np.sqrt(total) / 2))
    rng = stream(arguments.seed, _NODES)
    shares = rng.lognormal(sigma=0.6, size=blocks)
    shares /= shares.sum()
    # Proportions fall geometrically, last to first in the ratio .2 : .8.
    prior = CLASS_RATIO ** (np.arange(classes) / (classes - 1))
    prior /= prior.sum()
    by_block = rng.dirichlet(BLOCK_CONCENTRATION * prior, size=blocks) + 1e-3
    for _ in range(100):  # raking: the network's proportions stay the stated ones
        by_block /= by_block.sum(axis=1, keepdims=True)
        by_block *= prior / (shares @ by_block)
    class_bounds = np.cumsum(by_block / by_block.sum(axis=1, keepdims=True), axis=1)
    means = rng.standard_normal((classes, arguments.features))
    means *= CLASS_DISTANCE / np.sqrt(2 * arguments.features)
    # A block's offset is mainly a mix of the class means, so that its nodes can look
    # like those of another class.
    offsets = OFFSET_IN_CLASS_SPACE * rng.standard_normal((blocks, classes)) @ means
    offsets += OFFSET_ELSEWHERE * rng.standard_normal(offsets.shape)
    taste = rng.random(blocks) - 0.5

    home = np.searchsorted(np.cumsum(shares)[:-1], rng.random(total))
    drawn, label = rng.random(total), np.zeros(total, np.int64)
    for bound in class_bounds.T[:-1]:  # one column at a time keeps memory 1-D
        label += drawn > bound[home]
    # No class is empty: the first nodes take the classes in turn, two each.
    label[: 2 * classes] = np.arange(2 * classes) % classes
    labelled = rng.random(total) < arguments.labelled
    for c in range(classes):
        labelled[np.flatnonzero(label == c)[:LABELLED_AT_LEAST]] = True
    weight = np.ceil(rng.pareto(1.5, total))
    hub = np.ceil(weight.mean() * np.sqrt(total / arguments.degree))
    weight = np.minimum(weight, hub).astype(np.int64)

    group = label * blocks + home
    order = np.argsort(group, kind="stable")
    return PlantedNetwork(
        arguments,
        home=home,
        label=label,
        labelled=labelled,
        weight=weight,
        tickets=np.repeat(order, weight[order]),
        group=offsets_of(np.bincount(group, weight, classes * blocks)),
        by_home=np.argsort(home, kind="stable"),
        homes=offsets_of(np.bincount(home, minlength=blocks)),
        means=means,
        offsets=offsets,
        taste=taste,
    )


def draw_features(network: PlantedNetwork, first: int, last: int) -> Floats32:
    """Features of the nodes of one `NODE_BLOCK`, float32, (last - first, F)."""
    rng = stream(network.arguments.seed, _FEATURES, first // NODE_BLOCK)
    values = network.means[network.label[first:last]]
    values += network.offsets[network.home[first:last]]
    values += rng.standard_normal(values.shape)
    return values.astype(np.float32)


def draw_edges(network: PlantedNetwork) -> Iterator[tuple[Ints, Ints]]:
    """Yield edges by blocks of emitting nodes: (src, dst).

    A block has complete homes: most duplicates are pairs within a home, and these are
    detected within one block.
    """
    arguments, label, home = network.arguments, network.label, network.home
    tickets = np.bincount(label, network.weight)
    share = tickets / tickets.sum()
    chance = np.sum(share**2)
    # Edges of a class to itself and to others, over those without regard to classes.
    same = arguments.homophily * share / chance
    apart = (1 - arguments.homophily) * (1 - share) / (1 - chance)
    each = arguments.nodes * arguments.degree / 2 / tickets.sum() * (same + apart)
    equal = same / (same + apart)
    step = max(1, int(EDGE_BLOCK * 2 / arguments.degree))
    cuts = np.unique(network.homes[1:] // step, return_index=True)[1]
    bounds = sorted({0, arguments.nodes, *network.homes[1:][cuts[1:]].tolist()})
    bits = arguments.nodes.bit_length()
    for block, (first, last) in enumerate(pairwise(bounds)):
        rng = stream(arguments.seed, _EDGES, block)
        nodes = network.by_home[first:last]
        expected = each[label[nodes]] * network.weight[nodes]
        src = np.repeat(nodes, (expected + rng.random(len(nodes))).astype(np.int64))
        own = label[src]
        taste = network.taste[home[src]]
        # As far as a taste can go; the mean of the shifts is zero.
        reach = np.minimum(equal, 1 - equal)[own] + 1e-12
        shift = reach * (taste - np.average(taste, weights=reach))
        wanted = np.where(
            rng.random(len(src)) < equal[own] + shift, own, _others(own, share, rng)
        )
        keys = np.empty(0, np.int64)
        for attempt in range(ROUNDS):
            dst = _draw_ends(network, src, wanted, rng, attempt < LOCAL_ROUNDS)
            # Pack the two ends into one integer, so that sorting finds duplicates.
            pairs = np.minimum(src, dst) << bits | np.maximum(src, dst)
            keys = np.sort(np.concatenate([keys, pairs]))
            low, high = keys >> bits, keys & ((1 << bits) - 1)
            bad = low == high
            bad[1:] |= keys[1:] == keys[:-1]
            # Draw again with the same two classes, so that H stays the same.
            src, wanted, keys = low[bad], label[high[bad]], keys[~bad]
        low, high = low[~bad], high[~bad]
        turned = rng.random(len(low)) < 0.5
        yield np.where(turned, high, low), np.where(turned, low, high)


def _others(own: Ints, share: Floats, rng: np.random.Generator) -> Ints:
    """Classes other than the own ones, drawn by their shares."""
    ends = np.cumsum(share)
    at = rng.random(len(own)) * (1 - share[own])
    at += share[own] * (at >= (ends - share)[own])
    return np.minimum(np.searchsorted(ends, at, "right"), len(share) - 1)


def _draw_ends(
    network: PlantedNetwork,
    src: Ints,
    wanted: Ints,
    rng: np.random.Generator,
    local: bool,
) -> Ints:
    """Nodes of the wanted classes, by weight, from the home of `src` or from all."""
    blocks, bounds = len(network.taste), network.group
    group = wanted * blocks + network.home[src]
    least, most = bounds[wanted * blocks], bounds[(wanted + 1) * blocks]
    near = local * LOCALITY * blocks * (bounds[group + 1] - bounds[group])
    at_home = rng.random(len(src)) < near / (near + most - least)
    first = np.where(at_home, bounds[group], least)
    last = np.where(at_home, bounds[group + 1], most)
    at = first + (rng.random(len(src)) * (last - first)).astype(np.int64)
    ends: Ints = network.tickets[at]
    return ends


def draw_members(network: PlantedNetwork, community: int) -> Ints:
    """Nodes of a community, each once."""
    total = network.arguments.nodes
    rng = stream(network.arguments.seed, _COMMUNITIES, community)
    smallest = min(SMALLEST_COMMUNITY, total // 2)
    largest = max(LARGEST_SHARE * total, smallest)
    size = min(smallest * (1 - rng.random()) ** (-1 / 1.2), largest)
    home = network.home[rng.integers(total)]
    there = network.by_home[network.homes[home] : network.homes[home + 1]]
    count = min(round(HOME_SHARE * size), len(there))
    near = rng.choice(there, count, replace=False)
    far = rng.choice(total, round(count * (1 / HOME_SHARE - 1)), replace=False)
    return np.concatenate([near, far[network.home[far] != home]])
