"""How a command ends: on a signal or an error in one sentence and an exit status."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from xnq_dist.core.errors import InfrastructureError, XnqError
from xnq_dist.core.failures import causes, explained, place_of

__all__ = ["named_ending"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a command to end."""
INTERRUPTED = InfrastructureError.exit_code


@contextmanager
def named_ending(words: Sequence[str]) -> Iterator[None]:
    """A block that raises nothing but `SystemExit`.

    What ended it goes to stderr in one sentence; with ``--json`` among the words of
    the command also to stdout, as ``{"error": ..., "exit_code": ...}``. Where
    ``XNQ_DEBUG`` is set, errors are raised with their traceback.
    """
    as_json = "--json" in words
    try:
        with _signals():
            yield
    except _Interrupted as ended:
        place = place_of(ended)
        _end(
            f"interrupted by {signal.Signals(ended.number).name}"
            f"{f' in {place}' if place else ''}: run again to resume",
            INTERRUPTED,
            as_json,
        )
    except Exception as error:  # the last resort: an internal error, named as such
        if os.environ.get("XNQ_DEBUG"):
            raise
        _end(*_sentence(error, words[0] if words else ""), as_json)


class _Interrupted(SystemExit):
    """A signal ends the process: as an exception, so that locks are released."""

    def __init__(self, number: int) -> None:
        super().__init__(INTERRUPTED)
        self.number = number


def _interrupt(number: int, _frame: Any) -> None:
    raise _Interrupted(number)


@contextmanager
def _signals() -> Iterator[None]:
    """Signals raise `_Interrupted` in the block; those ignored (nohup) stay so."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    hook, sys.unraisablehook = sys.unraisablehook, _signal_not_lost
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _signal_not_lost(lost: Any) -> None:
    """Hook for exceptions that nobody can catch: a signal's is sent again.

    The handler's exception may be raised inside a finaliser or a callback of the
    garbage collector, of which there are many while futures come and go. Python then
    prints and forgets it, and the run would go on to its end.
    """
    from prefect.exceptions import ExternalSignal

    if not issubclass(lost.exc_type, (_Interrupted, ExternalSignal)):
        sys.__unraisablehook__(lost)
        return
    number = getattr(lost.exc_value, "number", signal.SIGTERM)
    # Not at once: it would be raised in here, and be lost again.
    again = threading.Timer(0.05, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _sentence(error: Exception, command: str) -> tuple[str, int]:
    """What an error that ended a command says, and its exit status."""
    place = place_of(error)
    folder = str(getattr(error, "filename", None) or Path.cwd())
    stage = "" if isinstance(error, XnqError) else command
    known = _api_lost(error) or explained(error, folder, stage)
    if known is not None:
        return str(known), known.exit_code
    return (
        f"internal error{f' in {place}' if place else ''}: {type(error).__name__}: "
        f"{error}; please report it with the traceback that XNQ_DEBUG=1 shows",
        XnqError.exit_code,
    )


def _api_lost(error: BaseException) -> XnqError | None:
    """The sentence where an API of Prefect is behind an error."""
    if isinstance(error, XnqError) or "httpx" not in sys.modules:
        return None
    import httpx

    url = os.environ.get("PREFECT_API_URL", "")
    for cause in causes(error, contexts=True):
        if isinstance(cause, httpx.HTTPError) or (url and url in str(cause)):
            reason = " ".join(f"{type(cause).__name__} {cause}".split())
            return InfrastructureError(
                f"Prefect's API at {url} was lost ({reason}): start it again with "
                "`prefect server start` or unset PREFECT_API_URL, and run again to "
                "resume"
            )
    return None


def _end(sentence: str, status: int, as_json: bool) -> None:
    # The terminal that a hang-up came from cannot be written to any more.
    with suppress(OSError):
        sentence = " ".join(sentence.split())
        typer.echo(f"xnq-dist: {sentence}", err=True)
        if as_json:
            typer.echo(json.dumps({"error": sentence, "exit_code": status}))
    sys.exit(status)
