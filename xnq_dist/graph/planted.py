"""The model of a synthetic social network with known classes, in bounded memory.

All parts are drawn from streams keyed by (seed, purpose, block), so the bits depend on
the arguments alone.

- **Home.** Every node belongs to one of about ``sqrt(nodes) / 2`` home blocks whose
  sizes follow a log-normal law. Each block has its own class proportions and feature
  offsets.
- **Class.** Network-wide proportions fall geometrically from the first class to the
  last, in the ratio .8 : .2 (two classes: 80 % and 20 %). Blocks scatter around them
  (Dirichlet), raked so that the network's proportions stay as stated.
- **Degree.** A node's propensity is a power law of exponent 2.5, capped at
  ``3 sqrt(nodes / degree)``.
- **Homophily** H is the probability that an edge joins two nodes of one class. The
  classes (c, d) of an edge's two ends are drawn in proportion to ``p_c p_d``, scaled
  so that equal pairs get H and unequal pairs 1 - H. If H is below ``sum p_c^2`` (the
  value for links independent of class), the network is heterophilic; rare classes then
  necessarily have larger degrees.
- **Locality.** The other end is drawn from the home block of the first with the
  probability `LOCAL`, else from all nodes.
- **Features.** Class mean + offset of the home block + unit noise. Class means are
  `CLASS_DISTANCE` apart; block offsets lie mostly in the space of the class means,
  where they make classification harder.
- **Communities** overlap and have power-law sizes. Members come mostly from one home
  block, whose class proportions and features differ from the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats32, Ints, Ints32, offsets_of
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.random_bits import stream

__all__ = [
    "Arguments",
    "PlantedNetwork",
    "draw_edges",
    "draw_features",
    "draw_memberships",
    "draw_network",
]

NODE_BLOCK, EDGE_BLOCK, COMMUNITY_BLOCK = 1 << 14, 1 << 19, 1 << 8
"""Rows drawn from one stream."""

CLASS_RATIO = 0.2 / 0.8
BLOCK_CONCENTRATION = 2.0
"""Dirichlet concentration of a block's class proportions: smaller is more varied."""
CLASS_DISTANCE = 2.0
OFFSET_IN_CLASS_SPACE, OFFSET_ELSEWHERE = 1.0, 0.3
LOCAL = 0.5
ATTEMPTS = 8
"""Maximum number of attempts to draw as many distinct edges as requested."""
HOME_SHARE = 0.9
"""Share of the members of a community that come from its home block."""
SMALLEST_COMMUNITY, LARGEST_SHARE = 30, 0.04
LABELLED_AT_LEAST = 10

_NETWORK, _FEATURES, _EDGES, _COMMUNITIES = range(4)


@dataclass(frozen=True)
class Arguments:
    """Arguments of `generate`, whose docstring explains them."""

    nodes: int
    degree: float
    features: int
    classes: int
    homophily: float
    communities: int
    seed: int
    labelled: float
    string_ids: bool

    def check(self) -> None:
        """Check the arguments; a `SettingsError` names all that are out of range."""
        nodes = self.nodes
        rules = {
            "nodes": (10 <= nodes < 2**31, "at least 10 and below 2^31"),
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
    """The nodes as 1-D arrays, and the tables of the home blocks."""

    home: Ints32
    label: NDArray[np.int16]
    labelled: Bools
    tickets: Ints32
    """Each node repeated by its propensity, ordered by (class, home)."""
    group: Ints
    """Bounds in `tickets` of group ``class * homes + home``, (C * homes + 1,)."""
    by_home: tuple[Ints, Ints]
    """Nodes ordered by home, and the bounds of each home."""
    means: Floats32
    """Feature means of the classes, (C, F)."""
    offsets: Floats32
    """Feature offsets of the homes, (homes, F)."""


def draw_network(arguments: Arguments) -> PlantedNetwork:
    """Draw home, class and propensity of every node, and the tables of the homes."""
    total, classes = arguments.nodes, arguments.classes
    homes = max(2, round(np.sqrt(total) / 2))
    rng = stream(arguments.seed, _NETWORK, 0)
    shares = rng.lognormal(sigma=0.6, size=homes)
    shares /= shares.sum()
    prior = CLASS_RATIO ** (np.arange(classes) / (classes - 1))
    prior /= prior.sum()
    mixed = rng.dirichlet(BLOCK_CONCENTRATION * prior, homes) + 1e-3
    for _ in range(100):  # raking: the network's proportions stay the stated ones
        mixed *= prior / (shares @ mixed)
        mixed /= mixed.sum(axis=1, keepdims=True)
    home = rng.choice(homes, total, p=shares).astype(np.int32)
    label, drawn = np.zeros(total, np.int16), rng.random(total)
    for bound in np.cumsum(mixed, axis=1).T[:-1]:
        label += drawn > bound[home]
    # No class is empty: the first nodes take the classes in turn, two each.
    label[: 2 * classes] = np.arange(2 * classes) % classes
    labelled = rng.random(total) < arguments.labelled
    for one in range(classes):
        labelled[np.flatnonzero(label == one)[:LABELLED_AT_LEAST]] = True

    law = (1 - rng.random(total)) ** (-1 / 1.5)
    law = np.minimum(law, 3 * max(2.0, np.sqrt(total / arguments.degree)))
    propensity = (law + rng.random(total)).astype(np.int64)
    group = label.astype(np.int64) * homes + home
    order = np.argsort(group, kind="stable")
    # Weights are integers below 2^53, so the sums are exact.
    sizes = np.bincount(group, propensity, classes * homes).astype(np.int64)

    means = rng.standard_normal((classes, arguments.features))
    means -= means.mean(axis=0)
    # The mean squared distance of centred means is 2 / (C - 1) sum |m|^2.
    means *= CLASS_DISTANCE / np.sqrt(2 / (classes - 1) * np.sum(means**2))
    # A home's offset is mainly a mix of the class means, so that its nodes can look
    # like those of another class.
    offsets = OFFSET_IN_CLASS_SPACE * rng.standard_normal((homes, classes)) @ means
    offsets += OFFSET_ELSEWHERE * rng.standard_normal(offsets.shape)
    return PlantedNetwork(
        home=home,
        label=label,
        labelled=labelled,
        tickets=np.repeat(order.astype(np.int32), propensity[order]),
        group=offsets_of(sizes),
        by_home=(
            np.argsort(home, kind="stable"),
            offsets_of(np.bincount(home, minlength=homes)),
        ),
        means=means.astype(np.float32),
        offsets=offsets.astype(np.float32),
    )


def draw_features(
    network: PlantedNetwork, arguments: Arguments, first: int, last: int
) -> Floats32:
    """Features of the nodes of one `NODE_BLOCK`, float32, (last - first, F)."""
    rng = stream(arguments.seed, _FEATURES, first // NODE_BLOCK)
    shape = (last - first, arguments.features)
    values: Floats32 = rng.standard_normal(shape, dtype=np.float32)
    values += network.means[network.label[first:last]]
    values += network.offsets[network.home[first:last]]
    return values


def draw_edges(
    network: PlantedNetwork, arguments: Arguments
) -> Iterator[tuple[Ints, Ints]]:
    """Yield edges by blocks of homes: (src, dst), without loops, once each in a block.

    Most duplicates would be within a home, and a block has all edges of its homes.
    """
    nodes, classes, homes = arguments.nodes, arguments.classes, len(network.offsets)
    share = np.bincount(network.label, minlength=classes) / nodes
    equal, other = np.diag(share**2), np.outer(share, share)
    np.fill_diagonal(other, 0)
    joint = arguments.homophily * equal / equal.sum()
    joint += (1 - arguments.homophily) * other / other.sum()
    ends = joint.sum(axis=1, keepdims=True)
    # Bounds of the class of the other end, those of class c in [c, c + 1).
    bounds = (np.cumsum(joint / ends, axis=1) + np.arange(classes)[:, None]).ravel()
    weight = np.diff(network.group).reshape(classes, homes)
    total = nodes * arguments.degree / 2
    expected = total * ends * weight / weight.sum(axis=1, keepdims=True)
    step = max(1, int(homes * EDGE_BLOCK / total))
    for block, first in enumerate(range(0, homes, step)):
        rng = stream(arguments.seed, _EDGES, block)
        part = expected[:, first : first + step]
        counts = (part + rng.random(part.shape)).astype(np.int64).ravel()
        groups = np.indices(part.shape).reshape(2, -1)
        label, home = np.repeat(groups, counts, axis=1) + np.array([[0], [first]])
        keys, drawn = np.empty(0, np.int64), np.arange(len(label))
        for _ in range(ATTEMPTS):
            one, there = label[drawn], home[drawn]
            src = _draw_ends(network, rng, one, there)
            found = bounds.searchsorted(one + rng.random(len(one)), side="right")
            target = np.minimum(found - one * classes, classes - 1)
            near = np.where(rng.random(len(one)) < LOCAL, there, -1)
            dst = _draw_ends(network, rng, target, near)
            pairs = np.minimum(src, dst) * nodes + np.maximum(src, dst)
            keys = np.sort(np.concatenate([keys, pairs[src != dst]]))
            keys = keys[np.diff(keys, prepend=-1) > 0]
            drawn = rng.integers(max(len(label), 1), size=len(label) - len(keys))
        low, high = np.divmod(keys, nodes)
        turned = rng.random(len(keys)) < 0.5
        yield np.where(turned, high, low), np.where(turned, low, high)


def _draw_ends(
    network: PlantedNetwork, rng: np.random.Generator, label: Ints, home: Ints
) -> Ints:
    """Nodes of these classes, by propensity; from a home, if it has any, or -1: all."""
    bounds, homes = network.group, len(network.offsets)
    begin = label * homes
    near = (home >= 0) & (bounds[begin + home] < bounds[begin + home + 1])
    first = bounds[np.where(near, begin + home, begin)]
    last = bounds[np.where(near, begin + home + 1, begin + homes)]
    at = first + (rng.random(len(label)) * (last - first)).astype(np.int64)
    return network.tickets[at].astype(np.int64)


def draw_memberships(
    network: PlantedNetwork, arguments: Arguments
) -> Iterator[tuple[Ints, Ints]]:
    """Yield members by blocks of communities: (community, node)."""
    total = arguments.nodes
    ordered, bounds = network.by_home
    largest = max(LARGEST_SHARE * total, SMALLEST_COMMUNITY)
    smallest = min(SMALLEST_COMMUNITY, total // 2)
    for first in range(0, arguments.communities, COMMUNITY_BLOCK):
        rng = stream(arguments.seed, _COMMUNITIES, first // COMMUNITY_BLOCK)
        numbers = range(first, min(first + COMMUNITY_BLOCK, arguments.communities))
        members = []
        for _ in numbers:
            size = min(smallest * (1 - rng.random()) ** (-1 / 1.2), largest)
            home = network.home[rng.integers(total)]
            there = ordered[bounds[home] : bounds[home + 1]]
            near = min(round(HOME_SHARE * size), len(there))
            far = rng.integers(total, size=round(near * (1 / HOME_SHARE - 1)))
            chosen = rng.choice(there, near, replace=False)
            members.append(np.union1d(chosen, far))
        sizes = [len(each) for each in members]
        yield np.repeat(np.array(numbers), sizes), np.concatenate(members)
