"""Errors whose message says what is wrong, where, and what to do next."""

from xnq_dist.core.redaction import joined, redacted, split_query

__all__ = [
    "ClusterError",
    "ConnectionLostError",
    "DamagedError",
    "DoesNotFitError",
    "InfrastructureError",
    "InputError",
    "RunDirectoryError",
    "SettingsError",
    "StageError",
    "XnqError",
]


class XnqError(Exception):
    """Base of all errors raised on purpose; the message is a sentence for a user.

    Messages quote addresses and what libraries say of them: credentials are taken out.
    """

    exit_code = 1
    """Of the command line: 1 internal error, 2 bad input or settings, 3 does not fit,
    4 interrupted or infrastructure lost (run it again)."""

    stage = ""
    """Stage whose name and folder the message begins with; empty: none yet."""

    def __init__(self, *args: object) -> None:
        super().__init__(*redacted(args))


class InputError(XnqError):
    """A user's table is missing, unreadable or breaks the data contract."""

    exit_code = 2


class SettingsError(XnqError):
    """A setting is unknown, out of range or contradicts another."""

    exit_code = 2


class RunDirectoryError(XnqError):
    """A run directory is something else, not writable or made from another graph."""

    exit_code = 2


class ClusterError(XnqError):
    """A Dask cluster is not set up as its settings say."""

    exit_code = 2


class DoesNotFitError(XnqError):
    """The work needs more memory, disk or open files than is there."""

    exit_code = 3


class InfrastructureError(XnqError):
    """A disk, cluster, network or service failed, or is in use: run it again."""

    exit_code = 4


class ConnectionLostError(InfrastructureError):
    """A connection broke while a stage used it: worth another try at once."""


class StageError(XnqError):
    """A stage failed for a reason that is not the user's input; run again to resume."""


class DamagedError(StageError):
    """A file of a run directory is not what was written."""

    exit_code = 4

    def __init__(self, folder: str, file: str, what: str, stage: str = "") -> None:
        super().__init__(
            f"{joined(folder, file)} {what}: run again, and what it belongs to is set "
            "aside and done again"
        )
        self.folder = folder
        """Folder of the file, as a path or URI."""
        self.file = file
        self.what = what
        """What is wrong with it."""
        name = split_query(folder)[0].rstrip("/").rsplit("/", 1)[-1]
        self.stage = stage or name

    @property
    def path(self) -> str:
        """The file's path or URI."""
        return joined(self.folder, self.file)

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        # Errors of workers travel pickled.
        return type(self), (self.folder, self.file, self.what, self.stage)
