"""The model of a synthetic social network with known classes, in bounded memory.

The model is a degree-corrected planted-community network; all its parts are drawn from
counter-based streams keyed by (seed, purpose, block), so the bits depend on the
arguments alone.

- **Home.** Every node belongs to one of about ``sqrt(nodes) / 2`` home blocks whose
  sizes follow a log-normal law. Each block has its own class proportions, feature
  offsets and taste in linking.
- **Class.** Network-wide proportions fall geometrically from the first class to the
  last, in the ratio .8 : .2 (two classes: 80 % and 20 %). Blocks scatter around them
  (Dirichlet), raked so that the network's proportions stay as stated.
- **Degree.** A node's propensity is a power law of exponent 2.5 times a log-normal
  factor of its (home, class), capped at ``sqrt(nodes / degree)`` and rounded to 1/4.
- **Homophily** H is the probability that an edge joins two nodes of one class. The
  classes (c, d) of an edge's two ends are drawn in proportion to ``p_c p_d``, scaled
  so that equal pairs get H and unequal pairs 1 - H. If H is below ``sum p_c^2`` (the
  value for links independent of class), the network is heterophilic; rare classes then
  necessarily have larger degrees. Each block multiplies the odds of an equal pair by
  its own factor; the mean over the network is H.
- **Locality.** The other end is drawn from the emitter's home block with odds of
  `linking.LOCALITY` times the block's share of the required class over its mean share,
  else from all nodes.
- **Features.** Class mean + offset of the home block + unit noise. Class means are
  `CLASS_DISTANCE` apart; block offsets lie mostly in the space of the class means,
  where they make classification harder.
- **Communities** overlap and have power-law sizes. Members come mostly from one home
  block, whose class proportions, features and linking all differ from the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Floats32, Ints, Ints32, offsets_of
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.random_bits import stream

__all__ = [
    "Arguments",
    "PlantedNetwork",
    "draw_features",
    "draw_members",
    "draw_network",
]

NODE_BLOCK = 1 << 14
"""Nodes drawn from one stream."""
CLASS_RATIO = 0.2 / 0.8
BLOCK_CONCENTRATION = 4.0
"""Dirichlet concentration of a block's class proportions: smaller is more varied."""
CLASS_DISTANCE = 1.0
OFFSET_IN_CLASS_SPACE = 1.5
OFFSET_ELSEWHERE = 0.3
TASTE = 2.5
"""Standard deviation of the log of a block's factor on the odds of an equal pair."""
ACTIVITY = 1.5
"""Standard deviation of the log of the degree factor of a (home, class)."""
HOME_SHARE = 0.9
"""Share of a community's members that come from its home block."""
SMALLEST_COMMUNITY = 20
LARGEST_SHARE = 0.04
LABELLED_AT_LEAST = 10

_HOMES, _BLOCKS, _CLASSES, _PROPENSITIES, _LABELLED, _MEANS, _FEATURES = range(7)
EDGES, _COMMUNITIES = range(7, 9)


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
    """Ids and community names as text instead of integers."""

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
    home: Ints32
    label: NDArray[np.int16]
    labelled: Bools
    propensity: Ints32
    tickets: Ints32
    """Each node repeated by its propensity, ordered by (class, home)."""
    group: Ints
    """Bounds in `tickets` of group ``class * blocks + home``, (C * blocks + 1,)."""
    by_class: tuple[Ints, Ints]
    """Nodes ordered by class, and the bounds of each class."""
    by_home: tuple[Ints, Ints]
    """Nodes ordered by home, and the bounds of each home."""
    means: Floats32
    """Feature means of the classes, (C, F)."""
    offsets: Floats32
    """Feature offsets of the homes, (blocks, F)."""
    taste: Floats
    """Added to the log-odds of an equal pair by an emitter's home, (blocks,)."""

    @property
    def blocks(self) -> int:
        """Number of home blocks."""
        return len(self.by_home[1]) - 1


def draw_network(arguments: Arguments) -> PlantedNetwork:
    """Home, class and propensity of every node, and the tables of the blocks."""
    seed, total, classes = arguments.seed, arguments.nodes, arguments.classes
    blocks = max(2, round(np.sqrt(total) / 2))
    rng = stream(seed, _BLOCKS, 0)
    shares = rng.lognormal(sigma=0.6, size=blocks)
    shares /= shares.sum()
    # Proportions fall geometrically, last to first in the ratio .2 : .8.
    prior = CLASS_RATIO ** (np.arange(classes) / (classes - 1))
    prior /= prior.sum()
    by_block = rng.dirichlet(BLOCK_CONCENTRATION * prior, size=blocks) + 1e-3
    for _ in range(100):  # raking: the network's proportions stay the stated ones
        by_block /= by_block.sum(axis=1, keepdims=True)
        by_block *= prior / (shares @ by_block)
    by_block /= by_block.sum(axis=1, keepdims=True)
    share_bounds = np.cumsum(shares)
    class_bounds = np.cumsum(by_block, axis=1)
    activity = np.exp(ACTIVITY * rng.standard_normal((blocks, classes)))
    activity /= np.exp(ACTIVITY**2 / 2)

    home = np.empty(total, np.int32)
    label = np.empty(total, np.int16)
    labelled = np.empty(total, np.bool_)
    propensity = np.empty(total, np.int32)
    smallest, largest = _propensity_range(total, arguments.degree)
    for block, first in enumerate(range(0, total, NODE_BLOCK)):
        part = slice(first, min(first + NODE_BLOCK, total))
        size = part.stop - first
        at = np.searchsorted(share_bounds, stream(seed, _HOMES, block).random(size))
        home[part] = np.minimum(at, blocks - 1)
        drawn = stream(seed, _CLASSES, block).random(size)
        for c in range(classes - 1):  # one column at a time keeps memory 1-D
            above = drawn > class_bounds[home[part], c]
            label[part] = np.where(above, c + 1, label[part] if c else 0)
        labelled[part] = (
            stream(seed, _LABELLED, block).random(size) < arguments.labelled
        )
        uniform, rounding = stream(seed, _PROPENSITIES, block).random((2, size))
        law = smallest * (1 - uniform) ** (-1 / 1.5)
        law = np.minimum(law * activity[home[part], label[part]], largest)
        propensity[part] = np.maximum(np.floor(4 * law + rounding), 1)
    # No class is empty: the first nodes take the classes in turn, two each.
    label[: 2 * classes] = np.arange(2 * classes) % classes

    by_class = np.argsort(label, kind="stable")
    class_edges = _bounds(label, classes)
    for c in range(classes):
        first = class_edges[c]
        last = min(first + LABELLED_AT_LEAST, class_edges[c + 1])
        labelled[by_class[first:last]] = True
    group = label.astype(np.int64) * blocks + home
    order = np.argsort(group, kind="stable")
    tickets = np.repeat(order.astype(np.int32), propensity[order])
    edges = np.zeros(classes * blocks + 1, np.int64)
    # Weights are integers below 2^53, so the sums are exact.
    edges[1:] = np.cumsum(np.bincount(group, propensity, classes * blocks))

    means, offsets, taste = _feature_blocks(arguments, blocks)
    return PlantedNetwork(
        arguments,
        home=home,
        label=label,
        labelled=labelled,
        propensity=propensity,
        tickets=tickets,
        group=edges,
        by_class=(by_class, class_edges),
        by_home=(np.argsort(home, kind="stable"), _bounds(home, blocks)),
        means=means.astype(np.float32),
        offsets=offsets.astype(np.float32),
        taste=taste,
    )


def _feature_blocks(arguments: Arguments, blocks: int) -> tuple[Floats, Floats, Floats]:
    """Class means (C, F), offsets of blocks (B, F) and tastes of blocks (B,)."""
    classes = arguments.classes
    rng = stream(arguments.seed, _MEANS, 0)
    means = rng.standard_normal((classes, arguments.features))
    means -= means.mean(axis=0)
    # The mean squared distance of centred means is 2 / (C - 1) sum |m|^2.
    means *= CLASS_DISTANCE / np.sqrt(2 / (classes - 1) * np.sum(means**2))
    # A block's offset is mainly a mix of the class means, so that its nodes can look
    # like those of another class.
    mix = rng.standard_normal((blocks, classes))
    offsets = OFFSET_IN_CLASS_SPACE * mix @ means
    offsets += OFFSET_ELSEWHERE * rng.standard_normal((blocks, arguments.features))
    return means, offsets, TASTE * rng.standard_normal(blocks)


def _propensity_range(nodes: int, degree: float) -> tuple[float, float]:
    """Smallest and largest propensity whose capped power law has mean 1."""
    largest = max(2.0, float(np.sqrt(nodes / degree)))
    smallest = 1 / 3
    for _ in range(50):  # mean of min(X, largest) is 3 s - 2 s^1.5 largest^-.5
        smallest = (1 + 2 * smallest**1.5 / np.sqrt(largest)) / 3
    return smallest, largest


def _bounds(codes: NDArray[np.integer], size: int) -> Ints:
    return offsets_of(np.bincount(codes, minlength=size))


def draw_features(network: PlantedNetwork, first: int, last: int) -> Floats32:
    """Features of the nodes of one `NODE_BLOCK`, float32, (last - first, F)."""
    rng = stream(network.arguments.seed, _FEATURES, first // NODE_BLOCK)
    shape = (last - first, network.arguments.features)
    values: Floats32 = rng.standard_normal(shape, dtype=np.float32)
    values += network.means[network.label[first:last]]
    values += network.offsets[network.home[first:last]]
    return values


def draw_members(network: PlantedNetwork, community: int) -> Ints:
    """Nodes of a community, each once."""
    total = network.arguments.nodes
    rng = stream(network.arguments.seed, _COMMUNITIES, community)
    smallest = min(SMALLEST_COMMUNITY, total // 2)
    largest = max(LARGEST_SHARE * total, smallest)
    size = min(smallest * (1 - rng.random()) ** (-1 / 1.2), largest)
    home = network.home[rng.integers(total)]
    nodes, bounds = network.by_home
    there = nodes[bounds[home] : bounds[home + 1]]
    count = min(round(HOME_SHARE * size), len(there))
    near = rng.choice(there, count, replace=False)
    far = rng.choice(total, round(count * (1 / HOME_SHARE - 1)), replace=False)
    return np.concatenate([near, far[network.home[far] != home]])
