"""The one place where low-level errors become sentences of the error family.

A stage runs inside `stage_errors`: what leaves it names the stage, the folder and what
to do next, and its class has the exit code that a scheduler acts on. Errors that come
back from a worker are judged like those of this process, by their chain of causes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from xnq_dist.core.errors import (
    ConnectionLostError,
    DoesNotFitError,
    InfrastructureError,
    InputError,
    RunDirectoryError,
    SettingsError,
    XnqError,
)

if TYPE_CHECKING:
    from xnq_dist.core.store import RunDirectory

__all__ = ["OPEN", "causes", "explained", "in_stage", "place_of", "stage_errors"]

P = ParamSpec("P")
R = TypeVar("R")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
BROKEN = frozenset(
    {errno.EROFS, errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOTCONN}
)
"""A disk that is read-only, failing or gone."""
DENIED = frozenset({errno.EACCES, errno.EPERM})
NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR})
OURS = "xnq-dist-"
"""In the paths of our temporary files."""
MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
OPEN = "open"
"""The stage in which a run directory is looked at and locked."""
NO_ANSWER = (
    "NETWORK_CONNECTION",
    "curlCode",
    "INTERNAL_FAILURE",
    "REQUEST_TIMEOUT",
    "SERVICE_UNAVAILABLE",
    "SLOW_DOWN",
    "THROTTLING",
)
"""What `pyarrow.fs` says, without a number, of an object store that does not answer."""
REFUSED = (
    "ACCESS_DENIED",
    "ACCOUNT_",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID",
    "INVALID_SIGNATURE",
    "MISSING_AUTHENTICATION_TOKEN",
    "SIGNATURE_DOES_NOT_MATCH",
    "UNRECOGNIZED_CLIENT",
    "ExpiredToken",
    "InvalidToken",
)
"""What it says of one that refuses a key, or what is done with it."""


@contextmanager
def stage_errors(folder: str, stage: str) -> Iterator[None]:
    """Errors of the block name the stage and its folder.

    Parameters
    ----------
    folder
        What the stage writes to, as messages name it.
    stage
        The stage's name; a step inside it may have named itself before.

    Raises
    ------
    XnqError
        In place of any error that is not a fault of the program; that one is raised
        as it is, with a note for `place_of`.
    """
    try:
        yield
    except BaseException as error:
        found = explained(error, folder, stage)
        if found is not None and found is not error:
            found.stage = stage
            raise found from error
        if found is not None:
            if not found.stage and found.exit_code != InputError.exit_code:
                found.args = (f"{_named(found, folder, stage)}: {found}",)
                found.stage = stage
        elif not getattr(error, "__notes__", None):
            error.add_note(f"stage {stage} of {folder}")
        raise


def in_stage(
    stage: str,
) -> Callable[
    [Callable[Concatenate[RunDirectory, P], R]],
    Callable[Concatenate[RunDirectory, P], R],
]:
    """`stage_errors` for a function whose first argument is the run directory."""

    def decorate(
        function: Callable[Concatenate[RunDirectory, P], R],
    ) -> Callable[Concatenate[RunDirectory, P], R]:
        @wraps(function)
        def named(run: RunDirectory, /, *args: P.args, **kwargs: P.kwargs) -> R:
            with stage_errors(run.uri, stage):
                return function(run, *args, **kwargs)

        return named

    return decorate


def place_of(error: BaseException) -> str:
    """The stage and folder that `stage_errors` noted on an error; else empty."""
    for cause in causes(error, contexts=True):
        for note in getattr(cause, "__notes__", ()):
            if note.startswith("stage "):
                return str(note)
    return ""


def explained(error: BaseException, folder: str, stage: str) -> XnqError | None:
    """An error of the family for a low-level one, itself when it is of the family.

    Parameters
    ----------
    folder, stage
        What messages name; they only serve for errors that do not say more.

    Returns
    -------
    XnqError or None
        None: the error is a fault of the program, or no error at all (a signal's).
    """
    if not isinstance(error, Exception):
        return None
    if isinstance(error, XnqError):
        return _disk_behind(error, folder, stage) or error
    for cause in causes(error):
        if isinstance(cause, XnqError):
            # A worker or a library raised something else because of it.
            return type(cause)(f"{_named(cause, folder, stage)}: {cause}")
        found = _memory(cause, folder, stage) or _connection(cause, folder, stage)
        if found is None and isinstance(cause, OSError):
            found = _file(cause, folder, stage)
        if found is not None:
            return found
    # A full disk may show as what its handling ran into: a writer that cannot close.
    for cause in causes(error, contexts=True):
        if isinstance(cause, OSError) and cause.errno in FULL | BROKEN:
            return _file(cause, folder, stage)
    return None


def _named(error: BaseException, folder: str, stage: str) -> str:
    """The stage, and its folder where the message does not name that already."""
    return f"stage {stage}" if folder in str(error) else f"stage {stage} of {folder}"


def causes(error: BaseException, contexts: bool = False) -> Iterator[BaseException]:
    """The error, then its causes; with `contexts` what was being handled as well."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        handled = None if at.__suppress_context__ or not contexts else at.__context__
        at = at.__cause__ or handled


def _disk_behind(error: XnqError, folder: str, stage: str) -> XnqError | None:
    """The same sentence with status 4 where a disk or network is the reason.

    Whoever raised it may know the table or setting concerned, not whose fault it is.
    """
    if isinstance(error, InfrastructureError | DoesNotFitError):
        return None
    numbers = FULL | BROKEN
    theirs: tuple[type[XnqError], ...] = (InputError, SettingsError)
    if stage in ("", OPEN):
        theirs += (RunDirectoryError,)  # the place that was chosen, not a lost one
    if not isinstance(error, theirs):
        numbers |= DENIED | NOT_THERE
    for cause in causes(error):
        if isinstance(cause, OSError) and (
            cause.errno in numbers or _says(cause, NO_ANSWER)
        ):
            where = f"{_named(error, folder, stage)}: " if stage else ""
            todo = "free space there" if cause.errno in FULL else "check that place"
            return InfrastructureError(
                f"{where}{error}; {todo} and run again to resume"
            )
    return None


def _memory(error: BaseException, folder: str, stage: str) -> XnqError | None:
    from distributed import KilledWorker

    no_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if isinstance(error, MemoryError) or no_memory:
        reason = f" ({error})" if str(error) else ""
        return DoesNotFitError(
            f"out of memory in stage {stage} of {folder}{reason}: use a machine or "
            "workers with more memory, or lower reservoir.dim, readout.memory or "
            "input.memory; run again to resume"
        )
    if isinstance(error, KilledWorker):
        return DoesNotFitError(
            f"workers died again and again in stage {stage} of {folder} ({error}): "
            "most likely they ran out of memory; lower reservoir.dim, readout.memory "
            "or cluster.threads, or raise cluster.memory_limit, and run again to resume"
        )
    if isinstance(error, OSError) and error.errno in MANY_FILES:
        return DoesNotFitError(
            f"too many open files in stage {stage} of {folder}: raise the limit with "
            "`ulimit -n`, and run again to resume"
        )
    return None


def _connection(error: BaseException, folder: str, stage: str) -> XnqError | None:
    from concurrent.futures import CancelledError

    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import NoValidWorkerError, NoWorkerError

    if isinstance(error, NoValidWorkerError | NoWorkerError):
        return InfrastructureError(
            f"the workers of stage {stage} of {folder} are gone ({error}): start "
            "workers again, and run again to resume"
        )
    kinds = (CommClosedError, ClosedClientError, CancelledError)
    if isinstance(error, (*kinds, ConnectionError, TimeoutError)):
        reason = " ".join(f"{type(error).__name__} {error}".split())
        return ConnectionLostError(
            f"the Dask scheduler or a worker was lost in stage {stage} of {folder} "
            f"({reason}): start it again if it is yours, and run again to resume"
        )
    return None


def _file(error: OSError, folder: str, stage: str) -> XnqError | None:
    reason = error.strerror or str(error)
    if error.errno in FULL:
        return InfrastructureError(
            f"the disk of {error.filename or folder} is full (stage {stage}): free "
            "space and run again to resume"
        )
    if error.errno in DENIED | {errno.EROFS}:
        return InfrastructureError(
            f"{error.filename or folder} cannot be written (stage {stage}: {reason}): "
            "make it writable and run again to resume"
        )
    if error.errno in BROKEN or (
        error.errno in NOT_THERE and any(part in str(error) for part in (folder, OURS))
    ):
        return InfrastructureError(
            f"a file of {error.filename or folder} is lost (stage {stage}: {reason}): "
            "check that its disk is mounted and healthy, and run again to resume"
        )
    if _says(error, REFUSED):
        # Before the work the key is wrong; while it goes on, rights were withdrawn.
        kind = RunDirectoryError if stage in ("", OPEN) else InfrastructureError
        return kind(
            f"the object store of {folder} refuses the key that it is opened with "
            f"(stage {stage}: {reason}): check the key, its rights and the address, "
            "and run again"
        )
    if _says(error, NO_ANSWER):
        return ConnectionLostError(
            f"the object store of {folder} does not answer (stage {stage}: {reason}): "
            "check the network and its address, and run again to resume"
        )
    return None


def _says(error: OSError, texts: Iterable[str]) -> bool:
    """Whether an error of an object store, which has no number, holds a text."""
    return error.errno is None and any(text in str(error) for text in texts)
