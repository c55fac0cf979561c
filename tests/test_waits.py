"""Every wait has a deadline, checked in the source of the package and its flows."""

from __future__ import annotations

import ast
from pathlib import Path

import xnq_dist

ROOT = Path(xnq_dist.__file__).parents[1]

THREADS = "waits for threads of this process that compute, write or read files"
INSIDE = "called inside `waiting.watched`, which looks at the cluster"

ALLOWED = {
    "xnq_dist/core/backend.py:GpuBackend.to_host": "copies an array, waits for nobody",
    "xnq_dist/core/threads.py:one_blas_thread": THREADS,
    "xnq_dist/core/threads.py:ahead": THREADS,
    "xnq_dist/graph/prepare.py:_write": THREADS,
    "xnq_dist/readout/rows.py:Part.over_states": THREADS,
    "xnq_dist/reservoir/exchange.py:Exchange.apply": INSIDE,
    "xnq_dist/core/waiting.py:gather": INSIDE,
    "xnq_dist/core/waiting.py:run_on_workers": INSIDE,
}
"""Allowed waits without a deadline, with reasons."""

UNBOUNDED = {
    "result": 0,
    "exception": 0,
    "wait": 0,
    "join": 0,
    "get": 0,
    "acquire": 0,
    "communicate": 0,
    "wait_for": 1,
    "wait_for_workers": 1,
}
"""Method -> positional arguments with which it still has no deadline."""

DASK = {
    "cancel",
    "gather",
    "restart",
    "retire_workers",
    "run",
    "run_on_scheduler",
    "scatter",
    "sync",
}
"""Methods of a client that have no deadline by themselves."""

SUBPROCESS = {"run", "call", "check_call", "check_output"}
SOCKET = {"recv", "recv_into", "accept"}
DEADLINES = {"timeout", "callback_timeout"}


def is_unbounded(call: ast.Call) -> bool:
    """Whether a call can wait forever, judging by its source."""
    if DEADLINES & {keyword.arg for keyword in call.keywords}:
        return False
    if isinstance(call.func, ast.Name):
        return call.func.id in {"as_completed", "urlopen"}
    if not isinstance(call.func, ast.Attribute):
        return False
    name, owner = call.func.attr, ast.unparse(call.func.value)
    if name == "result" and call.keywords:
        return False  # of a Prefect state: there is nothing to wait for
    if name == "get" and (owner.isupper() or owner.endswith("Context")):
        return False  # of a context variable
    if owner.endswith("client") and name in DASK:
        return True
    if owner == "subprocess":
        return name in SUBPROCESS
    if owner in {"distributed", "concurrent.futures"} and name in {
        "wait",
        "as_completed",
    }:
        return len(call.args) < 2
    if name in SOCKET:
        return True
    return name in UNBOUNDED and len(call.args) <= UNBOUNDED[name]


class Waits(ast.NodeVisitor):
    """Calls without a deadline, by the function that they are in."""

    def __init__(self, file: str) -> None:
        self.found: list[tuple[str, str]] = []
        self._file = file
        self._inside: list[str] = []

    def _within(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _within  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        if is_unbounded(node):
            # A class's method by both names; functions inside functions by the outer.
            depth = 2 if self._inside and self._inside[0].strip("_")[0].isupper() else 1
            where = f"{self._file}:{'.'.join(self._inside[:depth])}"
            self.found.append((where, f"line {node.lineno}: {ast.unparse(node)}"))
        self.generic_visit(node)


def waits() -> dict[str, list[str]]:
    """Every call without a deadline."""
    found: dict[str, list[str]] = {}
    for package in ("xnq_dist", "flows"):
        for path in sorted((ROOT / package).rglob("*.py")):
            seen = Waits(path.relative_to(ROOT).as_posix())
            seen.visit(ast.parse(path.read_text(encoding="utf-8")))
            for where, call in seen.found:
                found.setdefault(where, []).append(call)
    return found


def test_every_wait_has_a_deadline_or_a_reason():
    found = waits()
    without = {where: calls for where, calls in found.items() if where not in ALLOWED}
    assert without == {}
    assert set(ALLOWED) <= set(found), "a reason is given for what is not there"


def test_waits_without_a_deadline_are_recognised():
    for text in (
        "future.result()",
        "self._client.gather(futures)",
        "client.sync(client.scheduler.identity)",
        "thread.join()",
        "as_completed(futures)",
        "distributed.wait(futures)",
        "subprocess.run(command)",
        "stream.recv(10)",
        "condition.wait_for(there)",
    ):
        assert is_unbounded(ast.parse(text, mode="eval").body), text
