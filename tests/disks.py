"""A disk of a few MB that tests may fill, or make read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "small_disk"]


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"

    def fill(self, spare: int = 0) -> None:
        """Take all space but about `spare` bytes."""
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * (1 << 16))
            except OSError:
                size = file.tell()
        os.truncate(self._filler, max(0, size - spare))

    def empty(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)

    def set_read_only(self, read_only: bool = True) -> None:
        """Mount it again, for reading alone or not."""
        how = "remount,ro" if read_only else "remount,rw"
        subprocess.run(["mount", "-o", how, str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, size: str = "8m") -> Iterator[SmallDisk]:
    """Mount a tmpfs; skip the test, naming why, where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "xnq-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"a small disk cannot be mounted: {made.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
