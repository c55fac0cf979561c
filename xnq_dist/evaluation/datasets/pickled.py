"""Reads numbers from a pickle without executing it.

The opcodes are read with `pickletools` and interpreted here. Supported are lists,
dicts, numbers, texts, NumPy arrays of numbers, SciPy CSR matrices, and what a
`Machine` gets in addition. No name in the file is imported or called, so that a
malicious file cannot execute code.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from xnq_dist.core.errors import InputError

__all__ = ["CsrArrays", "Machine", "Name", "RefusedError", "Shell", "read_pickled"]


@dataclass(frozen=True)
class CsrArrays:
    """The arrays of a sparse matrix in CSR format."""

    shape: tuple[int, int]
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray


class RefusedError(Exception):
    """The pickle has unsupported content; the text is the reason."""


class _Mark:
    """Marks the beginning of a sequence of items on the stack."""


@dataclass(eq=False)
class Shell:
    """An object in the pickle whose content follows later."""

    kind: str
    content: Any = None


_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy._core.multiarray", "_reconstruct"): "reconstruct",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("scipy.sparse.csr", "csr_matrix"): "csr",
    ("scipy.sparse._csr", "csr_matrix"): "csr",
    ("collections", "defaultdict"): "defaultdict",
    ("copy_reg", "_reconstructor"): "reconstructor",
    ("copyreg", "_reconstructor"): "reconstructor",
    ("__builtin__", "object"): "object",
    ("builtins", "object"): "object",
    ("__builtin__", "list"): "list",
    ("builtins", "list"): "list",
    ("_codecs", "encode"): "encode",
}
"""The only supported names, and their kinds in this module."""

_VALUES = frozenset(
    (
        *("INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2"),
        *("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"),
    )
)
"""Opcodes that push their argument."""

_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "MARK": _Mark,
}
"""Opcodes that push a new object."""

_IGNORED = frozenset(("PROTO", "FRAME"))


def read_pickled(path: Path) -> Any:
    """Read the content of a pickle of numbers.

    It is a list, a dict, an array (`numpy.ndarray`) or a sparse matrix (`CsrArrays`).

    Raises
    ------
    InputError
        When the file is not a pickle or has other content.
    """
    try:
        return _plain(Machine().run(path.read_bytes()))
    except RefusedError as refused:
        reason = str(refused)
    except OSError as error:
        reason = error.strerror or str(error)
    except (
        *(ArithmeticError, AttributeError, LookupError),
        *(RecursionError, TypeError, ValueError),
    ) as error:
        # raised by pickletools and by wrong operands if the file is damaged
        reason = f"it is damaged: {error}"
    raise InputError(
        f"{path} is not a pickle of plain numbers ({reason}): download it again"
    )


class Machine:
    """A stack, a memo and the supported opcodes."""

    def kind_of(self, module: str, name: str) -> str:
        """The kind of a name in the file; raises a `RefusedError` if unsupported."""
        kind = _NAMES.get((str(module), str(name)))
        if kind is None:
            raise RefusedError(f"it names {module}.{name}"[:100])
        return kind

    def call(self, kind: str | None, arguments: Any) -> Any:
        """The result of a call in the file; nothing is actually called."""
        return _call(kind, arguments)

    def load(self, key: Any) -> Any:
        """The object outside the pickle that a persistent id names."""
        raise RefusedError("it refers to an object outside the file")

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.steps: dict[str, Callable[[Any], object]] = {
            "TUPLE": lambda _: self._push(tuple(self._pop_to_mark())),
            "TUPLE1": lambda _: self._push(tuple(self._take(1))),
            "TUPLE2": lambda _: self._push(tuple(self._take(2))),
            "TUPLE3": lambda _: self._push(tuple(self._take(3))),
            "LIST": lambda _: self._push(self._pop_to_mark()),
            "DICT": lambda _: self._push(_pairs(self._pop_to_mark())),
            "POP": lambda _: self._take(1),
            "APPEND": lambda _: self._extend(self._take(1)),
            "APPENDS": lambda _: self._extend(self._pop_to_mark()),
            "SETITEM": lambda _: self._update(self._take(2)),
            "SETITEMS": lambda _: self._update(self._pop_to_mark()),
            "GLOBAL": lambda argument: self._name(*argument.split(" ", 1)),
            "STACK_GLOBAL": lambda _: self._name(*self._take(2)),
            "REDUCE": lambda _: self._reduce(*self._take(2)),
            "NEWOBJ": lambda _: self._reduce(*self._take(2)),
            "BINPERSID": lambda _: self._push(self.load(*self._take(1))),
            "BUILD": lambda _: self._build(),
            "MEMOIZE": lambda _: self._remember(len(self.memo)),
        }
        for prefix in ("", "BIN", "LONG_BIN"):
            self.steps[f"{prefix}PUT"] = self._remember
            self.steps[f"{prefix}GET"] = lambda slot: self._push(self.memo[slot])

    def run(self, data: bytes) -> Any:
        """Interpret the opcodes and return the result."""
        for opcode, argument, _position in pickletools.genops(data):
            name = opcode.name
            if name in _VALUES:
                self._push(argument)
            elif name in _CONSTANTS:
                self._push(_CONSTANTS[name]())
            elif name == "STOP":
                return self._take(1)[0]
            elif name in self.steps:
                self.steps[name](argument)
            elif name not in _IGNORED:
                raise RefusedError(f"it has the opcode {name}")
        raise RefusedError("it has no end")

    def _push(self, value: Any) -> None:
        self.stack.append(value)

    def _name(self, module: str, name: str) -> None:
        self._push(Name(self.kind_of(module, name)))

    def _reduce(self, callee: Any, arguments: Any) -> None:
        kind = callee.kind if isinstance(callee, Name) else None
        self._push(self.call(kind, arguments))

    def _take(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise RefusedError("its stack is empty too early")
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def _pop_to_mark(self) -> list[Any]:
        """Remove the last mark and return the items pushed since."""
        for at in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[at], _Mark):
                items = self.stack[at + 1 :]
                del self.stack[at:]
                return items
        raise RefusedError("it has a sequence without a beginning")

    def _remember(self, slot: Any) -> None:
        self.memo[int(slot)] = self.stack[-1]

    def _extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise RefusedError("it appends to an object that is not a list")
        self.stack[-1].extend(items)

    def _update(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise RefusedError("it sets keys of an object that is not a dict")
        self.stack[-1].update(_pairs(items))

    def _build(self) -> None:
        (content,) = self._take(1)
        if not isinstance(self.stack[-1], Shell):
            raise RefusedError("it sets the content of an unknown object")
        self.stack[-1].content = _filled(self.stack[-1], content)


def _pairs(items: list[Any]) -> dict[Any, Any]:
    for key in items[::2]:
        # The hash of a deeply nested tuple can exhaust the C stack.
        for part in key if isinstance(key, tuple) else (key,):
            if not isinstance(part, (str, bytes, int, float, NoneType)):
                raise RefusedError(f"it has a key that is a {type(part).__name__}")
    return dict(zip(items[::2], items[1::2], strict=True))


@dataclass(frozen=True)
class Name:
    """A supported name in the file, which is never imported."""

    kind: str


def _call(kind: str | None, arguments: Any) -> Any:
    if kind == "reconstruct" and arguments[0] == Name("ndarray"):
        return Shell("array")
    if kind == "dtype":
        return Shell("dtype", _number_type(arguments[0]))
    if kind == "csr" and not arguments:
        return Shell("csr")
    if kind == "reconstructor" and arguments[0] == Name("csr"):
        return Shell("csr")
    if kind == "defaultdict" and arguments == (Name("list"),):
        return {}
    if kind == "encode" and arguments[1] in ("latin1", "latin-1"):
        return arguments[0].encode("latin-1")
    raise RefusedError(f"it calls {kind or 'an object'} in an unsupported way")


def _number_type(text: Any) -> np.dtype[Any]:
    # NumPy parses longer texts as lists of fields.
    kind = np.dtype(text if re.fullmatch(r"[<>=|]?[a-zA-Z]\d*", text) else object)
    if kind.kind not in "biuf":
        raise RefusedError(f"it has an array of {kind}")
    return kind


def _filled(shell: Shell, content: Any) -> Any:
    """The value of a shell from its state in the pickle."""
    if shell.kind == "opaque":
        return content
    if shell.kind == "dtype":
        order = str(content[1])
        return shell.content if order == "|" else shell.content.newbyteorder(order)
    if shell.kind == "csr":
        return _csr(content)
    _version, shape, kind, by_column, raw = content
    # Of a number, bytes() would make as many zeros.
    data = raw.encode("latin-1") if isinstance(raw, str) else memoryview(raw)
    flat = np.frombuffer(data, kind.content)
    return flat.reshape(shape, order="F" if by_column else "C")


def _csr(state: dict[str, Any]) -> CsrArrays:
    shape = state["_shape"] if "_shape" in state else state["shape"]
    arrays = [state[key].content for key in ("indptr", "indices", "data")]
    rows, columns = (int(extent) for extent in shape)
    indptr, indices, data = arrays
    consistent = (
        len(indptr) == rows + 1
        and len(indices) == len(data) == indptr[-1]
        and not np.any(np.diff(indptr) < 0)
        and not np.any((indices < 0) | (indices >= columns))
    )
    if not consistent:
        raise RefusedError("it has a sparse matrix with inconsistent arrays")
    return CsrArrays((rows, columns), indptr, indices, data)


def _plain(value: Any) -> Any:
    """The value, without the shell if it has one."""
    if isinstance(value, Shell):
        if value.content is None or value.kind == "dtype":
            raise RefusedError(f"it has an empty {value.kind}")
        return value.content
    if not isinstance(value, (list, dict)):
        raise RefusedError(f"it is a {type(value).__name__}")
    return value
