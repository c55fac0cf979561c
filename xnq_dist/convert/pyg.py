"""PyTorch Geometric's `Data`, or a dict of tensors, as `torch.save` wrote them.

The zip archive has a pickle, ``NAME/data.pkl``, whose persistent ids name files with
the numbers of the tensors, ``NAME/data/KEY``. The pickle is interpreted by `pickled`:
nothing is unpickled, imported or called, and PyTorch is not needed. Objects of PyTorch
Geometric are opaque, with their state kept.
"""

from __future__ import annotations

import math
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from xnq_dist.convert import FORMATS, Converted
from xnq_dist.convert.pickled import Machine, Name, RefusedError, Shell
from xnq_dist.convert.reading import check_archive, printable
from xnq_dist.convert.tensors import Arrays
from xnq_dist.core.errors import InputError

__all__ = ["matches", "read", "read_tensors"]


PICKLE = "data.pkl"
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""First bytes of files of PyTorch before 1.6, which are no archives."""
TYPES = {
    "Bool": "?",
    "Byte": "u1",
    "Char": "i1",
    "Short": "i2",
    "Int": "i4",
    "Long": "i8",
    "Half": "f2",
    "Float": "f4",
    "Double": "f8",
    "BFloat16": "bfloat16",
}
"""NumPy's types of the classes ``torch.TYPEStorage``."""
NAMES = {
    ("torch._utils", "_rebuild_tensor_v2"): "tensor",
    ("torch._utils", "_rebuild_parameter"): "parameter",
    ("collections", "OrderedDict"): "dict",
} | {("torch", f"{name}Storage"): f"storage {kind}" for name, kind in TYPES.items()}
MASKS = {"train": "train_mask", "validation": "val_mask", "test": "test_mask"}
EXPANDED = 1 << 24
"""Maximum values of a tensor that repeats the values of its storage."""


def matches(path: Path, head: bytes) -> bool:
    """An archive with a pickle, or a file of PyTorch before 1.6."""
    if head.startswith(LEGACY):
        return True
    return head.startswith(b"PK") and any(
        name.split("/")[-1] == PICKLE for name in zipfile.ZipFile(path).namelist()
    )


def read(path: Path) -> Converted:
    """Read ``x, y, edge_index``, weights and masks of one graph."""
    every = _attributes(read_tensors(path), path)
    found = {key: value for key, value in every.items() if _is_array(value)}
    if "edge_index" not in found:
        raise ValueError(f"it has no edge_index, only {', '.join(every) or 'nothing'}")
    weights, feature = found.get("edge_weight"), found.get("edge_attr")
    if weights is None and feature is not None and feature.size == len(feature):
        weights = feature
    used = {"x", "y", "edge_index", "edge_weight", "num_nodes", *MASKS.values()}
    left = [name for name in every if name not in used and every[name] is not weights]
    nodes = every.get("num_nodes")
    return Arrays(
        path,
        found["edge_index"].T,
        found.get("x"),
        found.get("y"),
        weights,
        {role: found[name].T for role, name in MASKS.items() if name in found},
        nodes if isinstance(nodes, int) else None,
        notes=[f"left out: {', '.join(left)}"] if left else [],
    ).tables()


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def _attributes(content: Any, path: Path) -> dict[str, Any]:
    """Arrays by name: of a dict, `Data`, or the file of an `InMemoryDataset`."""
    if isinstance(content, (tuple, list)) and content:
        content, *rest = content
        for slices in rest[:1]:
            if isinstance(slices, dict) and any(
                isinstance(places, np.ndarray) and len(places) > 2
                for places in slices.values()
            ):
                raise InputError(
                    f"{path} has several graphs and xnq-dist takes one: save one of "
                    "them, such as torch.save(dataset[0], 'graph.pt')"
                )
    state = _state(content)
    if "_node_store_dict" in state:
        raise InputError(
            f"{path} has several types of nodes and xnq-dist takes one: save a graph "
            "with one type, such as data.to_homogeneous()"
        )
    store = _state(state.get("_store", state))
    values = _state(store.get("_mapping", store))
    return {str(name): value for name, value in values.items() if value is not None}


def _state(value: Any) -> dict[Any, Any]:
    state = value.content if isinstance(value, Shell) else value
    if not isinstance(state, dict):
        raise ValueError(f"it holds a {type(state).__name__}, not Data or a dict")
    return state


def read_tensors(path: Path) -> Any:
    """Read the content of a file of `torch.save`.

    Tensors are NumPy arrays, and objects of PyTorch Geometric a `Shell`.

    Raises
    ------
    InputError
        When the file names anything else; nothing was run.
    """
    with path.open("rb") as stream:
        if stream.read(len(LEGACY)) == LEGACY:
            raise InputError(
                f"{path} was saved by PyTorch before 1.6: load it and save it again"
            )
    with zipfile.ZipFile(path) as archive:
        check_archive(path, archive)
        try:
            return _TorchMachine(archive).run()
        except RefusedError as refused:
            raise InputError(
                f"{path}: {printable(str(refused))}, and xnq-dist reads tensors only "
                f"and ran nothing: {FORMATS.record_of('pyg').hint}"
            ) from refused


class _TorchMachine(Machine):
    """Interprets the pickle of an archive, with tensors."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        super().__init__()
        self._archive = archive
        inside = [name for name in archive.namelist() if name.endswith(PICKLE)]
        self._pickle = min(inside, key=len)
        self._folder = self._pickle.removesuffix(PICKLE)
        order = f"{self._folder}byteorder"
        self._order = sys.byteorder
        if order in archive.namelist():
            self._order = "big" if archive.read(order) == b"big" else "little"
        self._storages: dict[tuple[str, str], np.ndarray[Any, Any]] = {}

    def run(self, data: bytes = b"") -> Any:
        return super().run(data or self._archive.read(self._pickle))

    def kind_of(self, module: str, name: str) -> str:
        if (found := NAMES.get((str(module), str(name)))) is not None:
            return found
        if str(module).startswith("torch_geometric."):
            return "opaque"
        return super().kind_of(module, name)

    def call(self, kind: str | None, arguments: Any) -> Any:
        if kind == "tensor":
            return _tensor(*arguments[:4])
        if kind == "parameter":
            return arguments[0]
        if kind == "dict" and not arguments:
            return {}
        if kind == "opaque":
            return Shell("opaque")
        return super().call(kind, arguments)

    def load(self, key: Any) -> np.ndarray[Any, Any]:
        """Numbers of the storage that ``('storage', type, key, place, n)`` names."""
        _word, kind, name, _place, count = key
        if not isinstance(kind, Name) or not kind.kind.startswith("storage "):
            raise RefusedError("it has a storage of an unknown type")
        stored = kind.kind.removeprefix("storage ")
        at = (str(name), stored)
        if at not in self._storages:
            data = self._archive.read(f"{self._folder}data/{name}")
            order = ">" if self._order == "big" else "<"
            self._storages[at] = _numbers(data, stored, order)
        found = self._storages[at]
        if len(found) < count:
            raise RefusedError(f"its storage {name} ends after {len(found)} values")
        return found


def _numbers(data: bytes, stored: str, order: str) -> np.ndarray[Any, Any]:
    if stored == "?":
        return np.asarray(np.frombuffer(data, np.uint8) != 0)
    if stored == "bfloat16":  # the upper half of a float32
        halves = np.frombuffer(data, f"{order}u2").astype(np.uint32)
        return (halves << 16).view(np.float32)
    found = np.frombuffer(data, f"{order}{stored}")
    return np.asarray(found, found.dtype.newbyteorder("="))


def _tensor(flat: Any, offset: int, shape: Any, strides: Any) -> Any:
    """A tensor as a view of the values of its storage."""
    numbers = [offset, *shape, *strides]
    if not isinstance(flat, np.ndarray) or not all(
        isinstance(number, int) and number >= 0 for number in numbers
    ):
        raise RefusedError("it has a tensor without a size")
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    count = math.prod(shape)
    if count and offset + sum(steps) >= len(flat):
        raise RefusedError("it has a tensor beyond the end of its storage")
    if count > max(len(flat), EXPANDED):
        raise RefusedError(f"it has a tensor that repeats {len(flat)} values")
    width = flat.itemsize
    # An empty tensor has no values to point at, whatever its strides.
    start = flat[offset:] if count else flat[:0]
    return as_strided(start, shape, [step * width for step in strides], writeable=False)
