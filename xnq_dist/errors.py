"""Errors whose message says what is wrong, where, and what to do next."""

__all__ = [
    "ClusterError",
    "ConnectionLostError",
    "DoesNotFitError",
    "InfrastructureError",
    "InputError",
    "RunDirectoryError",
    "SettingsError",
    "StageError",
    "XnqError",
]


class XnqError(Exception):
    """Base of all errors raised on purpose; the message is a sentence for a user."""

    exit_code = 1
    """Of the command line: 1 internal error, 2 bad input or settings, 3 does not fit,
    4 interrupted or infrastructure lost (run it again)."""

    stage = ""
    """Stage whose name and folder the message begins with; empty: none yet."""


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
