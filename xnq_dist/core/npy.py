"""Arrays in one file, one after the other, each as NumPy saves it.

The first array has the names of the others. `numpy.load` reads them all, one at a call.

NumPy parses an array's header as a Python literal. CPython before 3.11.8 has one global
depth counter for parsing literals (gh-106905), so that two threads that read arrays at
the same time can raise a SystemError. Here one thread at a time parses a header; data
are read in parallel, directly into the array.

Files are compared with their checksums (`core.store.checksums`) before they are parsed.
"""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib import format as numpy_format

__all__ = [
    "read_arrays",
    "read_row_blocks",
    "write_arrays",
]

_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class _Header:
    """Name and form of an array in a file."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the values, which follow the header."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_arrays(stream: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the names of arrays, then the arrays, each in C order.

    Raises
    ------
    ValueError
        When an array holds Python objects.
    """
    for values in (np.array(list(arrays)), *arrays.values()):
        rows = np.asarray(values, order="C")
        numpy_format.write_array(stream, rows, allow_pickle=False)


def read_arrays(stream: Any) -> dict[str, np.ndarray]:
    """The arrays that `write_arrays` wrote, by name.

    Raises
    ------
    ValueError
        When the file has other content or ends early.
    """
    return {header.name: _values(stream, header) for header in _arrays(stream)}


def read_row_blocks(stream: Any, name: str, rows: int) -> Iterator[np.ndarray]:
    """Blocks of up to `rows` rows of an array, in order; at least one, maybe empty.

    Raises
    ------
    ValueError
        As `read_arrays`.
    """
    for header in _arrays(stream):
        if header.name == name:
            for first in range(0, max(header.shape[0], 1), rows):
                count = min(rows, header.shape[0] - first)
                yield _values(stream, replace(header, shape=(count, *header.shape[1:])))
            return


def _arrays(stream: Any) -> Iterator[_Header]:
    """Header of each array in order; its values are read next, or skipped."""
    for name in _values(stream, _header(stream, "of names")).tolist():
        header = _header(stream, name)
        end = stream.tell() + header.nbytes
        yield header
        stream.seek(end, io.SEEK_SET)


def _header(stream: Any, name: str) -> _Header:
    """Read the header of an array, which gets this name."""
    numpy_format.read_magic(stream)
    with _ONE_AT_A_TIME:
        shape, by_column, dtype = numpy_format.read_array_header_1_0(stream)
    if by_column or dtype.hasobject:
        raise ValueError(f"array {name} is in Fortran's order, or of Python objects")
    return _Header(name, shape, dtype)


def _values(stream: Any, header: _Header) -> np.ndarray:
    """Read the values that follow a header."""
    values = np.empty(header.shape, header.dtype)
    if header.nbytes:
        data = values.reshape(-1).view(np.uint8).data
        count = stream.readinto(data)
        if count != header.nbytes:
            raise ValueError(
                f"array {header.name} ends after {count} of {header.nbytes} bytes"
            )
    return values
