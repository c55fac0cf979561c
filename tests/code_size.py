"""How much code there is to read, in tokens.

Comments, docstrings, blank lines, imports and `__all__` do not count, so that shorter
lines or fewer comments change nothing.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

__all__ = ["long_functions", "tokens"]

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def tokens(files: Iterable[Path]) -> int:
    """Tokens of code of Python files."""
    return sum(map(_tokens, files))


def long_functions(files: Iterable[Path], limit: int) -> dict[str, int]:
    """Lines of the functions that have more than `limit` without their docstring."""
    found = {}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if _is_text(node.body[0]):
                    lines -= node.body[0].end_lineno - node.body[0].lineno + 1
                if lines > limit:
                    found[f"{file.name}: {node.name}"] = lines
    return found


@cache
def _tokens(file: Path) -> int:
    text = file.read_text(encoding="utf-8")
    left_out = set(_lines_left_out(ast.parse(text)))
    found = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        # From Python 3.12 on an f-string is a start, its parts and an end: one token.
        kind = tokenize.tok_name[token.type]
        depth -= kind == "FSTRING_END"
        counts = token.type not in LAYOUT and token.start[0] not in left_out
        found += counts and not depth and kind != "FSTRING_END"
        depth += kind == "FSTRING_START"
    return found


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _lines_left_out(tree: ast.AST) -> Iterator[int]:
    """Lines of docstrings, imports and `__all__`."""
    for node in ast.walk(tree):
        names = isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__"
            for target in node.targets
        )
        if names or _is_text(node) or isinstance(node, ast.Import | ast.ImportFrom):
            yield from range(node.lineno, node.end_lineno + 1)
