"""One call in a process of its own, so that its memory is its own."""

from __future__ import annotations

import json
import sys
from importlib import import_module

from xnq_dist.evaluation.peak_memory import peak_memory

__all__ = ["main"]


def main() -> None:
    """Call ``module:function`` (first argument) with JSON arguments (second).

    Its dictionary goes to the standard output as the last line, with the largest
    resident bytes before the call, unless it says otherwise, and after it.
    """
    name, arguments = sys.argv[1:]
    module, _, function = name.partition(":")
    work = getattr(import_module(module), function)
    base = peak_memory()
    found = work(**json.loads(arguments))
    found = {"base_memory": base, **found, "peak_memory": peak_memory()}
    sys.stdout.write("\n" + json.dumps(found) + "\n")
