"""Random bits of single nodes: the same wherever, and beside whom, a node is drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["mixed_bits", "stream"]


def stream(seed: int, *key: int) -> np.random.Generator:
    """Counter-based random stream of a seed and a key, such as purpose and block."""
    sequence = np.random.SeedSequence(seed, spawn_key=key)
    return np.random.Generator(np.random.Philox(sequence))


def mixed_bits(
    index: NDArray[np.int64], key: np.random.SeedSequence
) -> NDArray[np.uint64]:
    """64 random bits of each index under a key, shape (n,).

    References
    ----------
    Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    (start,) = key.generate_state(1, np.uint64)
    z = index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)
