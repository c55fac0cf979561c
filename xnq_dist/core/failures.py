"""Converts low-level errors to errors of this package, with messages for users.

A stage runs in `stage_errors`: errors that leave it name the stage, the folder and what
to do next, and their class has the exit code for a scheduler. Errors of workers are
treated like errors of this process, by their chain of causes.
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
"""A disk that is read-only, failing or missing."""
DENIED = frozenset({errno.EACCES, errno.EPERM})
NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR})
TEMPORARY = "xnq-dist-"
"""Part of the paths of this package's temporary files."""
MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
OPEN = "open"
"""The step that checks and locks a run directory, before the stages."""
NO_ANSWER = (
    "NETWORK_CONNECTION",
    "curlCode",
    "INTERNAL_FAILURE",
    "REQUEST_TIMEOUT",
    "SERVICE_UNAVAILABLE",
    "SLOW_DOWN",
    "THROTTLING",
)
"""Texts in errors of `pyarrow.fs` if an object store does not answer; no errno."""
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
"""Texts in its errors if an object store refuses a key or an operation."""


@contextmanager
def stage_errors(folder: str, stage: str) -> Iterator[None]:
    """Convert errors of the block to errors that name the stage and its folder.

    Parameters
    ----------
    folder
        Folder that the stage writes to, for messages.
    stage
        Name of the stage; kept if an inner step has already named another one.

    Raises
    ------
    XnqError
        In place of any error that has a known cause. Internal errors are raised
        unchanged, with a note for `place_of`.
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
    """The stage and folder that `stage_errors` noted on an error; empty if none."""
    for cause in causes(error, contexts=True):
        for note in getattr(cause, "__notes__", ()):
            if note.startswith("stage "):
                return str(note)
    return ""


def explained(error: BaseException, folder: str, stage: str) -> XnqError | None:
    """Convert a low-level error to an `XnqError`; an `XnqError` is returned unchanged.

    Parameters
    ----------
    folder, stage
        Names for messages of errors that do not name a place themselves.

    Returns
    -------
    XnqError or None
        None: an internal error, or no `Exception` (such as an interrupt).
    """
    if not isinstance(error, Exception):
        return None
    if isinstance(error, XnqError):
        return _disk_behind(error, folder, stage) or error
    for cause in causes(error):
        if isinstance(cause, XnqError):
            # A worker or a library raised another error because of this one.
            return type(cause)(f"{_named(cause, folder, stage)}: {cause}")
        found = _memory(cause, folder, stage) or _connection(cause, folder, stage)
        if found is None and isinstance(cause, OSError):
            found = _file(cause, folder, stage)
        if found is not None:
            return found
    # A full disk may cause another error during cleanup: a writer that cannot close.
    for cause in causes(error, contexts=True):
        if isinstance(cause, OSError) and cause.errno in FULL | BROKEN:
            return _file(cause, folder, stage)
    return None


def _named(error: BaseException, folder: str, stage: str) -> str:
    """The stage, and its folder unless the message already names it."""
    return f"stage {stage}" if folder in str(error) else f"stage {stage} of {folder}"


def causes(error: BaseException, contexts: bool = False) -> Iterator[BaseException]:
    """Yield the error and its causes; with `contexts` also errors being handled."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        handled = None if at.__suppress_context__ or not contexts else at.__context__
        at = at.__cause__ or handled


def _disk_behind(error: XnqError, folder: str, stage: str) -> XnqError | None:
    """The same message with exit code 4 if a disk or network is the cause.

    The code that raised the error knows the table or setting, but not the cause.
    """
    if isinstance(error, InfrastructureError | DoesNotFitError):
        return None
    numbers = FULL | BROKEN
    users: tuple[type[XnqError], ...] = (InputError, SettingsError)
    if stage in ("", OPEN):
        users += (RunDirectoryError,)  # a wrong folder was chosen; none was lost
    if not isinstance(error, users):
        numbers |= DENIED | NOT_THERE
    for cause in causes(error):
        if isinstance(cause, OSError) and (
            cause.errno in numbers or _contains(cause, NO_ANSWER)
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
            f"workers died repeatedly in stage {stage} of {folder} ({error}), most "
            "likely for lack of memory: lower reservoir.dim, readout.memory or "
            "cluster.threads, or raise cluster.memory_limit, and run again to resume"
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
            f"the workers of stage {stage} of {folder} were lost ({error}): start "
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
        error.errno in NOT_THERE
        and any(part in str(error) for part in (folder, TEMPORARY))
    ):
        return InfrastructureError(
            f"a file of {error.filename or folder} is lost (stage {stage}: {reason}): "
            "check that its disk is mounted and healthy, and run again to resume"
        )
    if _contains(error, REFUSED):
        # Before the stages the key is wrong; during a stage, rights were withdrawn.
        kind = RunDirectoryError if stage in ("", OPEN) else InfrastructureError
        return kind(
            f"the object store of {folder} refuses the access key (stage {stage}: "
            f"{reason}): check the key, its rights and the address, and run again"
        )
    if _contains(error, NO_ANSWER):
        return ConnectionLostError(
            f"the object store of {folder} does not answer (stage {stage}: {reason}): "
            "check the network and its address, and run again to resume"
        )
    return None


def _contains(error: OSError, texts: Iterable[str]) -> bool:
    """Whether an object store's error, without errno, contains one of the texts."""
    return error.errno is None and any(text in str(error) for text in texts)
