"""Random streams keyed by seed, purpose and block; random bits of single nodes.

The bits depend only on the key, not on the process or on other streams.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.kernel import kernel

__all__ = ["GAMMA", "Purpose", "mix", "mixed_bits", "stream", "stream_key"]

GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""Step between the states of splitmix64."""


class Purpose(IntEnum):
    """First key of the random streams of a run; each number has one purpose."""

    RESERVOIR_INPUT = 0
    RESERVOIR_BIAS = 1
    RESERVOIR_DENSE = 2
    RESERVOIR_SPARSE = 3
    GROWTH_START = 4
    RESERVOIRS_SIDE_BY_SIDE = 5
    DISTANCES = 103
    LABELLED_FOLDS = 401
    NODE_FOLDS = 402
    FITTED_ROWS = 403
    FIRST_VECTORS = 431
    SAMPLES = 501
    LABELS_KEPT = 502
    SEARCH = 503
    REGIONS = 511
    DESIGNS = 512
    VOTES = 601
    VISITING_ORDER = 602
    SELECTION_ROWS = 611
    CLASS_PROPORTIONS = 640


def stream_key(seed: int, purpose: int, *more: int) -> np.random.SeedSequence:
    """The key of a stream; streams with different keys are independent."""
    return np.random.SeedSequence(seed, spawn_key=(int(purpose), *more))


def stream(seed: int, purpose: int, *more: int) -> np.random.Generator:
    """A counter-based random generator for one key."""
    return np.random.Generator(np.random.Philox(stream_key(seed, purpose, *more)))


@kernel
def mix(x: np.uint64) -> np.uint64:
    """Mix the bits of a key (the splitmix64 finaliser).

    References
    ----------
    Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mixed_bits(
    index: NDArray[np.int64], seed: int, purpose: int, *more: int
) -> NDArray[np.uint64]:
    """64 random bits of each index under a key as of `stream_key`, shape (n,)."""
    (start,) = stream_key(seed, purpose, *more).generate_state(1, np.uint64)
    states = index.astype(np.uint64) * GAMMA + start
    return np.asarray(mix.py_func(states), np.uint64)
