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
from typing import Any

import numpy as np
from numpy.lib import format as numpy_format

__all__ = [
    "read_arrays",
    "read_row_blocks",
    "write_arrays",
]

_ONE_AT_A_TIME = threading.Lock()


Form = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of an array, from its header."""


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
    return {name: _values(stream, name, form) for name, form in _arrays(stream)}


def read_row_blocks(stream: Any, name: str, rows: int) -> Iterator[np.ndarray]:
    """Blocks of up to `rows` rows of an array, in order; at least one, maybe empty.

    Raises
    ------
    ValueError
        As `read_arrays`.
    """
    for found, (shape, dtype) in _arrays(stream):
        if found == name:
            for first in range(0, max(shape[0], 1), rows):
                part = min(rows, shape[0] - first), *shape[1:]
                yield _values(stream, name, (part, dtype))
            return


def _arrays(stream: Any) -> Iterator[tuple[str, Form]]:
    """Name and form of each array in order; its values are read next, or skipped."""
    names = "of names"
    for name in _values(stream, names, _form(stream, names)).tolist():
        shape, dtype = form = _form(stream, name)
        end = stream.tell() + math.prod(shape) * dtype.itemsize
        yield name, form
        stream.seek(end, io.SEEK_SET)


def _form(stream: Any, name: str) -> Form:
    """Read the header of an array; `name` is for messages."""
    numpy_format.read_magic(stream)
    with _ONE_AT_A_TIME:
        shape, by_column, dtype = numpy_format.read_array_header_1_0(stream)
    if by_column or dtype.hasobject:
        raise ValueError(f"array {name} is in Fortran's order, or of Python objects")
    return shape, dtype


def _values(stream: Any, name: str, form: Form) -> np.ndarray:
    """Read the values that follow a header."""
    values = np.empty(*form)
    if values.nbytes:
        data = values.reshape(-1).view(np.uint8).data
        count = stream.readinto(data)
        if count != values.nbytes:
            raise ValueError(
                f"array {name} ends after {count} of {values.nbytes} bytes"
            )
    return values
