"""Converts low-level errors to errors of this package, with messages for users.

A stage runs in `stage_errors`: errors that leave it name the stage, the folder and what
to do next, and their class has the exit code for a scheduler. Errors of workers are
treated like errors of this process, by their chain of causes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from xnq_dist.core.errors import (
    DoesNotFitError,
    InfrastructureError,
    InputError,
    RunDirectoryError,
    SettingsError,
    XnqError,
    causes,
)

if TYPE_CHECKING:
    from xnq_dist.core.store import RunDirectory

__all__ = ["OPEN", "TEMPORARY", "explained", "in_stage", "place_of", "stage_errors"]

F = TypeVar("F", bound=Callable[..., Any])

OPEN = "open"
"""The step that checks and locks a run directory, before the stages."""
TEMPORARY = "xnq-dist-"
"""Beginning of the names of this package's temporary files and folders."""

Signs = Collection[int | str]
DISK = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),
    *(errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOTCONN),
}
"""Numbers of an `OSError` of a disk that is full, read-only, failing or missing."""
ACCESS = {
    "FileNotFoundError",
    "IsADirectoryError",
    "NotADirectoryError",
    "PermissionError",
}
"""Errors of a file that is missing, or that others own."""
NO_MEMORY: Signs = {
    "KilledWorker",
    "MemoryError",
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
}
NO_CLUSTER = {
    "CancelledError",
    "ClosedClientError",
    "CommClosedError",
    "ConnectionError",
    "NoValidWorkerError",
    "NoWorkerError",
    "TimeoutError",
}
NO_API = {"RequestError", "HTTPStatusError"}
"""Errors of httpx, through which Prefect calls its API."""
NO_ANSWER = {
    "INTERNAL_FAILURE",
    "NETWORK_CONNECTION",
    "REQUEST_TIMEOUT",
    "SERVICE_UNAVAILABLE",
    "SLOW_DOWN",
    "THROTTLING",
    "curlCode",
}
"""Texts in errors of `pyarrow.fs` if an object store does not answer; no errno."""
REFUSED = {"ACCESS_", "ACCOUNT_", "SIGNATURE", "TOKEN", "Token", "UNRECOGNIZED_CLIENT"}
"""Texts in its errors if an object store refuses a key or an operation."""

RULES: tuple[tuple[Signs, type[XnqError], str, str], ...] = (
    (
        NO_MEMORY,
        DoesNotFitError,
        "out of memory or open files",
        "use workers or a machine with more memory, lower reservoir.dim, "
        "readout.memory or input.memory, or raise `ulimit -n`",
    ),
    (
        NO_CLUSTER,
        InfrastructureError,
        "the Dask scheduler or workers were lost",
        "start them again if they are yours",
    ),
    (
        NO_API,
        InfrastructureError,
        "the connection to Prefect's API was lost",
        "start it again",
    ),
    (
        DISK | ACCESS,
        InfrastructureError,
        "a file cannot be read or written",
        "free space, or check its permissions, and that its disk is mounted, healthy "
        "and writable, and the same for all workers",
    ),
    (
        NO_ANSWER,
        InfrastructureError,
        "the object store does not answer",
        "check the network and its address",
    ),
    (
        REFUSED,
        InfrastructureError,
        "the object store refuses the access key",
        "check the key, its rights and the address",
    ),
)
"""Signs of an error (numbers of an `OSError`, names of classes, texts in errors of an
object store), what it becomes, what happened, and what to do."""


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
        if found is None and not getattr(error, "__notes__", None):
            error.add_note(f"stage {stage} of {folder}")
        if found is None or found is error:
            raise
        raise found from error


def in_stage(stage: str) -> Callable[[F], F]:
    """`stage_errors` and `deleting_damage` for a function of a run directory."""

    def decorate(function: F) -> F:
        @wraps(function)
        def named(run: RunDirectory, /, *args: Any, **kwargs: Any) -> Any:
            # The command line imports this module for its help, which is to be fast.
            from xnq_dist.core.store import deleting_damage

            with stage_errors(run.uri, stage), deleting_damage(run):
                return function(run, *args, **kwargs)

        return cast(F, named)

    return decorate


def place_of(error: BaseException) -> str:
    """The stage and folder that `stage_errors` noted on an error; empty if none."""
    for cause in causes(error, contexts=True):
        for note in getattr(cause, "__notes__", ()):
            if note.startswith("stage "):
                return str(note)
    return ""


def explained(error: BaseException, folder: str, stage: str) -> XnqError | None:
    """The error with a message for users, which names a stage and its folder.

    Parameters
    ----------
    folder, stage
        Named by messages that name no stage yet; an empty `stage` is not named.

    Returns
    -------
    XnqError or None
        None: an internal error, or no `Exception` (such as an interrupt).
    """
    found = _judged(error, folder, stage)
    if found is None or found.stage or not stage:
        return found
    # The sentence on a table or a setting is complete.
    if found is not error or found.exit_code != InputError.exit_code:
        of = "" if folder in str(found) else f" of {folder}"
        found.args = (f"stage {stage}{of}: {found}",)
        found.stage = stage
    return found


def _judged(error: BaseException, folder: str, stage: str) -> XnqError | None:
    """The error of this package that says what happened; None if unknown."""
    if isinstance(error, XnqError):
        return _with_disk(error, stage)
    if not isinstance(error, Exception):
        return None
    for cause in causes(error):
        # A worker or a library raised another error because of this one.
        found = cause if isinstance(cause, XnqError) else _known(cause, folder, stage)
        if found:
            return found
    # A full disk may cause another error during cleanup: a writer that cannot close.
    for cause in causes(error, contexts=True):
        if _shows(cause, DISK):
            return _known(cause, folder, stage)
    return None


def _with_disk(error: XnqError, stage: str) -> XnqError:
    """The error, with exit code 4 if a disk or network is the cause.

    The code that raised the error knows the table or setting, but not the cause.
    """
    signs: Signs = DISK | NO_ANSWER
    # The user chose a wrong table or folder; later, one was lost.
    if not (isinstance(error, InputError | SettingsError) or stage in ("", OPEN)):
        signs = {*signs, *ACCESS}
    if isinstance(error, InfrastructureError | DoesNotFitError) or not any(
        _shows(cause, signs) for cause in causes(error)
    ):
        return error
    return InfrastructureError(
        f"{error}; free space there, or check that place, and run again to resume"
    )


def _known(error: BaseException, folder: str, stage: str) -> XnqError | None:
    """The error of the first rule for this error; None: it has no known cause."""
    for signs, kind, what, todo in RULES:
        if not _shows(error, signs):
            continue
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not any(
            part in str(error) for part in (folder, TEMPORARY)
        ):
            return None  # not a file of the run
        if signs is REFUSED and stage in ("", OPEN):
            kind = RunDirectoryError  # the key is wrong; later, rights were withdrawn
        reason = " ".join(f"{type(error).__name__} {error}".split())
        return kind(f"{what} ({reason}): {todo}, and run again to resume")
    return None


def _shows(error: BaseException, signs: Signs) -> bool:
    """Whether an error has a number, a class or, without a number, a text of these."""
    number = error.errno if isinstance(error, OSError) else None
    if number in signs or any(each.__name__ in signs for each in type(error).__mro__):
        return True
    return (
        isinstance(error, OSError)
        and number is None
        and any(text in str(error) for text in signs if isinstance(text, str))
    )
