"""Safe reading: errors of libraries in one sentence, and sizes before the bytes."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from xnq_dist.core.errors import DoesNotFitError, InputError
from xnq_dist.core.limits import free_memory
from xnq_dist.core.npy import read_header, read_values
from xnq_dist.core.sizes import human

__all__ = ["check_archive", "check_memory", "printable", "read_arrays", "reading"]

_DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    NotImplementedError,  # a compression that zipfile does not know
    RuntimeError,  # an encrypted archive
    pa.ArrowException,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy, SciPy, Arrow, json, zipfile and our readers raise on a damaged file."""


@contextmanager
def reading(
    path: Path, what: str, hint: str = "save or download it again"
) -> Iterator[None]:
    """Turn errors in the block, which reads a file, into an `InputError`.

    Parameters
    ----------
    path, what, hint
        Words of the message: ``PATH is not WHAT (reason): HINT``.
    """
    try:
        yield
    except _DAMAGE as error:
        words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = printable(words)[:300]
        raise InputError(f"{path} is not {what} ({reason}): {hint}") from error


def printable(text: str) -> str:
    """Text of a file for a message: one line without control characters."""
    spaced = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in spaced)


def check_memory(path: Path, size: int) -> None:
    """Refuse to read a file that needs more than half of the free memory.

    Raises
    ------
    DoesNotFitError
        The message names both sizes.
    """
    free = free_memory() // 2
    if size > free:
        raise DoesNotFitError(
            f"{path} needs about {human(size)} of memory to be converted, and "
            f"{human(free)} can be used: convert it on a larger machine, or check "
            "where the file comes from"
        )


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """`check_memory` for the unpacked size of a zip archive, from its directory."""
    check_memory(path, sum(member.file_size for member in archive.infolist()))


def read_arrays(
    path: Path, names: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a NumPy archive by name; `optional` ones only if they are there.

    Raises
    ------
    InputError
        When the file is damaged, or an array is missing or holds Python objects.
    """
    with (
        reading(path, "a NumPy archive with the expected arrays"),
        path.open("rb") as stream,
        zipfile.ZipFile(stream) as archive,
    ):
        check_archive(path, archive)
        there = [name.removesuffix(".npy") for name in archive.namelist()]
        for name in names:
            if name not in there:
                raise ValueError(f"it has no array {name}, only {', '.join(there)}")
        present = [*names, *(name for name in optional if name in there)]
        return {name: _read_array(archive, name) for name in present}


def _read_array(archive: zipfile.ZipFile, name: str) -> np.ndarray[Any, Any]:
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as member:
        header = read_header(member, name)
        left = info.file_size - member.tell()
        if left < header.nbytes:
            raise ValueError(f"array {name} ends after {left} bytes")
        return read_values(member, header)
