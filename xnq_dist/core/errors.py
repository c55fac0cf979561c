"""Errors whose message says what is wrong, where, and what to do next."""

from collections.abc import Iterator

from xnq_dist.core.redaction import joined, redacted, split_query

__all__ = [
    "ClusterError",
    "DamagedError",
    "DoesNotFitError",
    "InfrastructureError",
    "InputError",
    "RunDirectoryError",
    "SettingsError",
    "StageError",
    "XnqError",
    "causes",
]


class XnqError(Exception):
    """Base of all errors raised on purpose; the message is written for users.

    Messages may quote addresses, so credentials are removed from them.
    """

    exit_code = 1
    """Exit code of the command line: 1 internal error, 2 bad input or settings, 3 does
    not fit, 4 interrupted or infrastructure lost (run it again)."""

    stage = ""
    """Stage whose name and folder the message starts with; empty: none yet."""

    def __init__(self, *args: object) -> None:
        super().__init__(*redacted(args))


class InputError(XnqError, ValueError):
    """A user's table is missing, unreadable or breaks the data contract."""

    exit_code = 2


class SettingsError(XnqError, ValueError):
    """A setting is unknown, out of range or contradicts another."""

    exit_code = 2


class RunDirectoryError(XnqError):
    """A folder is not a run directory, not writable or holds another graph."""

    exit_code = 2


class ClusterError(XnqError):
    """A Dask cluster does not match its settings."""

    exit_code = 2


class DoesNotFitError(XnqError):
    """The work needs more memory, disk or open files than are available."""

    exit_code = 3


class InfrastructureError(XnqError):
    """A disk, cluster, network or service failed, or is in use: run it again."""

    exit_code = 4


class StageError(XnqError):
    """A stage failed for a reason that is not the user's input; run again to resume."""


class DamagedError(StageError):
    """A file of a run directory is damaged: it differs from what was written."""

    exit_code = 4

    def __init__(self, folder: str, file: str, what: str) -> None:
        self.path = joined(folder, file)
        """The file's path or URI."""
        super().__init__(
            f"{self.path} {what}: run again, which deletes the damaged stage and does "
            "it again"
        )
        self.folder = folder
        """Folder of the file, as a path or URI."""
        self.file = file
        self.what = what
        """What is wrong with the file."""
        self.stage = split_query(folder)[0].rstrip("/").rsplit("/", 1)[-1]

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        # Errors of workers are pickled.
        return type(self), (self.folder, self.file, self.what)


def causes(error: BaseException, contexts: bool = False) -> Iterator[BaseException]:
    """Yield the error and its causes; with `contexts` also errors being handled."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        handled = None if at.__suppress_context__ or not contexts else at.__context__
        at = at.__cause__ or handled
