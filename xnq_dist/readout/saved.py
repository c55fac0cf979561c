"""Nested records as arrays of one file, by dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xnq_dist.core import config

__all__ = ["flat", "nested"]


def flat(values: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of nested dictionaries and records by dotted names.

    Examples
    --------
    >>> sorted(flat({"a": 1, "b": {"c": 2, "d": {"e": 3}}}))
    ['a', 'b.c', 'b.d.e']
    """
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in values.items():
        inner = vars(value) if is_dataclass(value) else value
        if isinstance(inner, Mapping):
            arrays |= {f"{name}.{rest}": each for rest, each in flat(inner).items()}
        else:
            arrays[name] = np.asarray(value)
    return arrays


def nested(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the nested dictionaries of arrays by dotted names."""
    return config.merged(*(config.nested(*each) for each in arrays.items()))
