"""Runs one function in a new process, so that its memory can be measured."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from xnq_dist.evaluation.peak_memory import peak_memory

__all__ = ["main"]


def main() -> None:
    """Call ``module:function`` (first argument) with JSON arguments (second).

    Writes the returned dictionary as the last line of the standard output, with the
    peak resident bytes before the call (unless it is in the dictionary) and after it.
    """
    name, arguments = sys.argv[1:]
    module, _, function = name.partition(":")
    work = getattr(import_module(module), function)
    base = peak_memory()
    result = work(**json.loads(arguments))
    result = {"base_memory": base, **result, "peak_memory": peak_memory()}
    sys.stdout.write("\n" + json.dumps(result) + "\n")
