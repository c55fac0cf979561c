"""The end of a command: a signal or error becomes one sentence and an exit status."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import typer

from xnq_dist.app.output import print_json
from xnq_dist.core.errors import InfrastructureError
from xnq_dist.core.failures import place_of

__all__ = ["end_process", "named_ending", "open_streams"]

log = logging.getLogger("xnq_dist")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that interrupt a command."""
INTERRUPTED = InfrastructureError.exit_code
USAGE_ERROR: Any = typer.BadParameter.__mro__[2]
"""Base of wrong options and arguments: `ClickException`, of click or Typer's own."""


@contextmanager
def named_ending(words: Sequence[str]) -> Iterator[None]:
    """Run a block and turn errors and signals into `SystemExit`.

    The error is written to stderr in one sentence, and to the JSON of a command with
    ``--json``, as ``{"error": ..., "exit_code": ...}``. If ``XNQ_DEBUG`` is set, errors
    are raised with their traceback.
    """
    try:
        with _signals():
            yield
    except _Interrupted as ended:
        place = place_of(ended)
        _end(
            f"interrupted by {signal.Signals(ended.number).name}"
            f"{f' in {place}' if place else ''}: run again to resume",
            INTERRUPTED,
        )
    except USAGE_ERROR as error:
        _end(error.format_message(), error.exit_code)
    except Exception as error:  # also internal errors, which the sentence names
        if os.environ.get("XNQ_DEBUG"):
            raise
        from xnq_dist.monitor.status import sentence_of

        _end(*sentence_of(error, words[0] if words else ""))


def end_process(status: Mapping[str, int]) -> None:
    """End the process with a status, after its other exit functions.

    Without this, the interpreter would take apart every module that was imported: a
    fifth of the time of a short command, after the time that it printed.
    """
    logging.shutdown()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status["code"])


def open_streams() -> None:
    """Open those of stdin, stdout and stderr that are closed, to nothing.

    A daemon may start its programs without them. Their numbers would go to the next
    files that are opened, and worker processes need all three.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            opened = open(os.devnull, "r+", encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(opened.fileno(), True)
            setattr(sys, name, opened)


class _Interrupted(SystemExit):
    """A signal as an exception, so that locks are released."""

    def __init__(self, number: int) -> None:
        super().__init__(INTERRUPTED)
        self.number = number


def _interrupt(number: int, _frame: Any) -> None:
    raise _Interrupted(number)


@contextmanager
def _signals() -> Iterator[None]:
    """Signals raise `_Interrupted` in the block, except those that are ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    hook, sys.unraisablehook = sys.unraisablehook, _send_signal_again
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _send_signal_again(lost: Any) -> None:
    """Hook for unraisable exceptions: if a signal raised it, send the signal again.

    The handler's exception may be raised inside a finaliser or a garbage collector
    callback, which are frequent while futures are created and released. Python then
    prints the exception and drops it, and the run would continue to its end.
    """
    if not isinstance(lost.exc_value, _Interrupted):
        sys.__unraisablehook__(lost)
        return
    # After a delay: at once, it would be raised inside this hook and lost again.
    again = threading.Timer(0.05, os.kill, (os.getpid(), lost.exc_value.number))
    again.daemon = True
    again.start()


def _end(sentence: str, status: int) -> None:
    # After SIGHUP the terminal can no longer be written to.
    with suppress(OSError):
        sentence = " ".join(sentence.split())
        typer.echo(f"xnq-dist: {sentence}", err=True)
        print_json({"error": sentence, "exit_code": status})
    sys.exit(status)
