"""A 128-bit hash of each row of a table, and the sum of many, in compiled loops.

The definition is fixed, for its sums are stored. Each row has two words of 64 bits
that begin as `START`. A value is folded in as the tag of its kind, then its words:

    a = (a ^ word) * M0;  a ^= a >> 32
    b = (b + word) * M1;  b ^= b >> 29

An integer is one word (two's complement), a boolean 0 or 1, a float64 its bits. Text
is the number of its UTF-8 bytes, then the bytes as little-endian words of eight, the
last one filled with zeros. A vector of float32 is its length, then the bits of each
value; where float64 values differ from their float32 ones, a vector of the differences
follows. At the end each word is spread by the splitmix64 finaliser, b above a is a
number of 128 bits, and those of all rows are added up modulo 2^128: the order of rows
and how they are divided do not matter, how often a row occurs does.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xnq_dist.graph.arrays import Bytes, Ints, Words
from xnq_dist.graph.ids import mix

__all__ = ["Words", "fold_text", "fold_vectors", "fold_words", "new_rows", "total"]


START = (0x243F6A8885A308D3, 0x13198A2E03707344)
M0, M1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def new_rows(n: int) -> Words:
    """The words of n rows with nothing folded in, shape (2, n)."""
    words = np.empty((2, n), np.uint64)
    words[0], words[1] = START
    return words


@njit(cache=True, inline="always")
def _first(a: np.uint64, word: np.uint64) -> np.uint64:
    a = (a ^ word) * M0
    return a ^ (a >> np.uint64(32))


@njit(cache=True, inline="always")
def _second(b: np.uint64, word: np.uint64) -> np.uint64:
    b = (b + word) * M1
    return b ^ (b >> np.uint64(29))


@njit(cache=True, nogil=True)
def fold_words(rows: Words, tag: int, words: Words) -> None:
    """Fold a value of one word into each row."""
    kind = np.uint64(tag)
    for i in range(words.shape[0]):
        rows[0, i] = _first(_first(rows[0, i], kind), words[i])
        rows[1, i] = _second(_second(rows[1, i], kind), words[i])


@njit(cache=True, nogil=True)
def fold_text(rows: Words, tag: int, offsets: Ints, data: Bytes) -> None:
    """Fold a string into each row: its bytes in `data`, from offset to offset."""
    kind = np.uint64(tag)
    for i in range(offsets.shape[0] - 1):
        first, last = offsets[i], offsets[i + 1]
        size = np.uint64(last - first)
        a = _first(_first(rows[0, i], kind), size)
        b = _second(_second(rows[1, i], kind), size)
        at = first
        while at < last:
            word = np.uint64(0)
            for j in range(min(8, last - at)):
                word |= np.uint64(data[np.uint64(at + j)]) << np.uint64(8 * j)
            a, b = _first(a, word), _second(b, word)
            at += 8
        rows[0, i], rows[1, i] = a, b


@njit(cache=True, nogil=True)
def fold_vectors(
    rows: Words, tag: int, offsets: Ints, bits: NDArray[np.uint32]
) -> None:
    """Fold a vector into each row; `offsets` as for text."""
    kind = np.uint64(tag)
    for i in range(offsets.shape[0] - 1):
        first, last = offsets[i], offsets[i + 1]
        size = np.uint64(last - first)
        a = _first(_first(rows[0, i], kind), size)
        b = _second(_second(rows[1, i], kind), size)
        for at in range(first, last):
            word = np.uint64(bits[at])
            a, b = _first(a, word), _second(b, word)
        rows[0, i], rows[1, i] = a, b


@njit(cache=True, nogil=True)
def _total(rows: Words) -> tuple[np.uint64, np.uint64]:
    low, high = np.uint64(0), np.uint64(0)
    for i in range(rows.shape[1]):
        a, b = mix(rows[0, i]), mix(rows[1, i])
        low += a
        high += b
        if low < a:
            high += np.uint64(1)
    return low, high


def total(rows: Words) -> int:
    """The sum of the rows' hashes modulo 2^128."""
    low, high = _total(rows)
    return (int(high) << 64) | int(low)
