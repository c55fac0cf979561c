"""A disk of a few MB that tests may fill, or make read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["NoSmallDisk", "SmallDisk", "mounted"]


class NoSmallDisk(Exception):  # noqa: N818 - a reason to skip, not an error
    """A small disk cannot be mounted on this machine; the text is the reason."""


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"

    def fill(self) -> None:
        """Fill the disk."""
        with self._filler.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * (1 << 16)):
                    pass
            except OSError:
                return

    def empty(self) -> None:
        """Free the space."""
        self._filler.unlink(missing_ok=True)

    def set_read_only(self, read_only: bool = True) -> None:
        """Mount it again, for reading alone or not.

        Raises
        ------
        subprocess.CalledProcessError
            When a file is being written.
        """
        how = "remount,ro" if read_only else "remount,rw"
        subprocess.run(
            ["mount", "-o", how, str(self.folder)], check=True, capture_output=True
        )


@contextmanager
def mounted(folder: Path, size: str = "8m") -> Iterator[SmallDisk]:
    """Mount a small disk at a new folder.

    Raises
    ------
    NoSmallDisk
        Where that is not allowed.
    """
    if os.geteuid() != 0:
        raise NoSmallDisk("mounting a small disk needs root")
    folder.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "xnq-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise NoSmallDisk(f"a small disk cannot be mounted: {made.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
