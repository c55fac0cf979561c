"""Temporary binary files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core.errors import StageError

__all__ = ["append", "mapped", "shared", "writing"]


def append(path: Path, array: NDArray[Any]) -> None:
    """Add an array's values at the end of a file; errors are those of `writing`."""
    with writing(path.parent), path.open("ab", buffering=0) as file:
        view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        while view:
            view = view[file.write(view) :]


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Write files in a folder.

    Raises
    ------
    StageError
        When the disk is full or the folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise StageError(
            f"temporary files in {folder} cannot be written "
            f"({error.strerror or error}): set scratch to a folder with more space"
        ) from error


def shared(path: Path, dtype: np.dtype[Any] | type, count: int) -> NDArray[Any]:
    """As `mapped`, for a file of `count` values that another process wrote.

    Raises
    ------
    StageError
        When the file is missing or has another size.
    """
    size = count * np.dtype(dtype).itemsize
    if not path.exists() or path.stat().st_size != size:
        raise StageError(
            f"{path} is missing or has another size: check that all workers see the "
            "same folder, and run again"
        )
    return mapped(path, dtype)


def mapped(path: Path, dtype: np.dtype[Any] | type) -> NDArray[Any]:
    """All values of a file, read when they are used; empty if there are none.

    They can be changed, without an effect on the file.
    """
    if not path.exists() or not path.stat().st_size:
        return np.empty(0, dtype)
    with path.open("rb") as file:
        # np.memmap takes three times as long, for each of many batches.
        return np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_COPY), dtype)
