"""Reads NumPy archives from many threads at once.

NumPy parses an array's header as a Python literal. CPython before 3.11.8 has one global
depth counter for parsing literals (gh-106905), so that two threads that read arrays at
the same time can raise a SystemError. Here one thread at a time parses a header; data
are read in parallel.

A stream that checks its bytes is read directly into the array; zipfile would copy them
twice and compute one more checksum.
"""

from __future__ import annotations

import io
import math
import struct
import threading
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

__all__ = ["read_npz", "read_row_blocks"]

_HEADER = threading.Lock()
_SLAB = 1 << 24
_LOCAL_HEADER = 30
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_npz(
    stream: IO[bytes], names: Iterable[str] | None = None, checked: bool = False
) -> dict[str, np.ndarray]:
    """The arrays of an npz file that `numpy.savez` wrote, by name; None: all.

    `checked`: the stream checks what it reads, so the archive's checksums are not.

    Raises
    ------
    KeyError
        When a named array is not in the file.
    ValueError
        When an array is not an npy file of version 1 or 2, holds Python objects or
        ends early.
    zipfile.BadZipFile
        When the file is not an archive, or an array's checksum differs.
    """
    with zipfile.ZipFile(stream) as archive:
        if names is None:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        found = {}
        for name in names:
            info = archive.getinfo(f"{name}.npy")
            with _member(archive, info, stream, checked) as member:
                found[name] = _read_array(member, name, info.file_size)
        return found


def read_row_blocks(
    stream: IO[bytes], name: str, rows: int, checked: bool = False
) -> Iterator[np.ndarray]:
    """Blocks of up to `rows` rows of an array, in order; at least one, maybe empty.

    `checked` and errors are those of `read_npz`; arrays must be in C order.
    """
    with zipfile.ZipFile(stream) as archive:
        info = archive.getinfo(f"{name}.npy")
        with _member(archive, info, stream, checked) as member:
            shape, fortran, dtype = _read_header(member, name, info.file_size)
            if fortran:
                raise ValueError(f"array {name} is not in C order")
            for first in range(0, max(shape[0], 1), rows):
                block = np.empty((min(rows, shape[0] - first), *shape[1:]), dtype)
                _fill(member, name, block.reshape(-1))
                yield block


def _member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, stream: IO[bytes], checked: bool
) -> AbstractContextManager[Any]:
    """A stream at the first byte of an array."""
    if not checked or info.compress_type != zipfile.ZIP_STORED:
        return archive.open(info)
    stream.seek(info.header_offset)
    # The local header ends with the lengths of the name and of further fields.
    lengths = struct.unpack_from("<2H", stream.read(_LOCAL_HEADER), _LOCAL_HEADER - 4)
    stream.seek(sum(lengths), io.SEEK_CUR)
    return nullcontext(stream)


def _read_array(member: Any, name: str, size: int) -> np.ndarray:
    shape, fortran, dtype = _read_header(member, name, size)
    values = np.empty(shape, dtype=dtype, order="F" if fortran else "C")
    # An array without axes has no bytes to view.
    _fill(member, name, values.reshape(-1, order="F" if fortran else "C"))
    return values


def _read_header(
    member: IO[bytes], name: str, size: int
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    begin = member.tell()
    version = npy.read_magic(member)
    if version not in _HEADERS:
        raise ValueError(f"array {name} is of npy version {version}, not 1 or 2")
    try:
        with _HEADER:
            shape, fortran, dtype = _HEADERS[version](member)
    except (SyntaxError, TokenError) as error:
        raise ValueError(f"array {name} has a damaged header ({error})") from error
    if dtype.hasobject:
        raise ValueError(f"array {name} holds Python objects, which are not read")
    # Before the allocation: a damaged header can name any shape.
    left = size - (member.tell() - begin)
    if left < math.prod(shape) * dtype.itemsize:
        raise ValueError(f"array {name} ends after {left} bytes")
    return shape, fortran, dtype


def _fill(member: Any, name: str, flat: np.ndarray) -> None:
    """Read the bytes of an array with one axis."""
    data = flat.view(np.uint8).data if flat.nbytes else memoryview(b"")
    for start in range(0, len(data), _SLAB):
        part = data[start : start + _SLAB]
        count = member.readinto(part)
        if count != len(part):
            raise ValueError(f"array {name} ends after {start + count} bytes")
