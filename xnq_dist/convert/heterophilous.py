"""NumPy archives in the form of Platonov et al.'s heterophilous graphs."""

from __future__ import annotations

import zipfile
from pathlib import Path

from xnq_dist.convert import Converted
from xnq_dist.convert.reading import read_arrays
from xnq_dist.convert.tensors import Arrays

__all__ = ["matches", "read"]


MASKS = {"train": "train_masks", "validation": "val_masks", "test": "test_masks"}


def matches(path: Path, head: bytes) -> bool:
    """A zip archive with an array of edges."""
    return head.startswith(b"PK") and "edges.npy" in zipfile.ZipFile(path).namelist()


def read(path: Path) -> Converted:
    """Read the arrays.

    An undirected edge is in the file once. As in the authors' code, edges have a
    direction if the file's name says so (``squirrel_directed.npz``).
    """
    names = ("node_features", "node_labels", "edges")
    found = read_arrays(path, names, tuple(MASKS.values()))
    return Arrays(
        path,
        found["edges"],
        found["node_features"],
        found["node_labels"],
        masks={role: found[name] for role, name in MASKS.items() if name in found},
        directed="directed" in path.stem.replace("undirected", ""),
    ).tables()
