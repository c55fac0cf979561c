"""Delivers published tables to other stores, one module per store: `delta`, `sql`.

Each module has ``check(target, name)``, called before a run does anything, and
``write(rows, run_id, target, name)``, which puts the rows of one run into the store at
once or not at all, and again without effect. ``ERRORS`` are the store's own errors.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec

from xnq_dist.core.errors import DamagedError, InfrastructureError, SettingsError
from xnq_dist.core.redaction import redacted
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Published, RunDirectory, read_published
from xnq_dist.quantify.checks.quality import without_values

__all__ = ["KEY", "check_sinks", "deliver", "refuse_other", "undelivered"]

log = logging.getLogger(__name__)

SINKS = ("delta", "sql")
"""Names of the settings with the stores, and of the modules."""
TABLE = "prevalence"
"""The published table that is delivered."""
DELIVERED = "_sinks.json"
"""Record in the run directory: the place and run_id of the last delivery, by store."""
KEY = ("community", "class", "run_id")
"""Columns that identify a row in a store."""
PACKAGES = {"delta": ("deltalake", "delta"), "postgresql": ("psycopg", "postgres")}
"""Package and extra of a store or of a database."""


def check_sinks(settings: Settings) -> None:
    """Check, before a run does anything, that tables can be delivered at its end.

    Raises
    ------
    SettingsError
        When a package is missing, or a store's address or table cannot be used.
    """
    for sink, target in _targets(settings).items():
        if "***" in target:
            raise SettingsError(
                f"sinks.{sink} {target} was recorded without its user and password: "
                f"give it again with --set sinks.{sink}=..., or null to deliver nothing"
            )
        kind = target.partition(":")[0].partition("+")[0] if sink == "sql" else sink
        package, extra = PACKAGES.get(kind, ("", ""))
        if package and find_spec(package) is None:
            raise SettingsError(
                f"sinks.{sink} needs the package {package}: pip install "
                f"'xnq-dist[{extra}]'"
            )
        import_module(f"{__name__}.{sink}").check(target, settings.sinks.table)


def undelivered(run: RunDirectory, settings: Settings) -> list[str]:
    """Stores that do not have the published results yet."""
    targets = _targets(settings)
    if not targets:
        return []
    run_id, known = Published(run).pointer().get("run_id"), _record(run)
    return [
        sink
        for sink in targets
        if known.get(sink) != {"place": _place(sink, settings), "run_id": run_id}
    ]


def deliver(run: RunDirectory, settings: Settings) -> list[str]:
    """Deliver the published results to the stores that do not have them; their names.

    Raises
    ------
    InfrastructureError
        When a store did not take them; the other ones have them.
    SettingsError
        When the table in a store belongs to something else.
    """
    names = undelivered(run, settings)
    if not names:
        return names
    version, failed = read_published(run.location), []
    # Others read a store: it never has the values of suppressed communities.
    rows = without_values(version.read(TABLE))
    for sink, target in _targets(settings).items():
        if sink not in names:
            continue
        module = import_module(f"{__name__}.{sink}")
        try:
            module.write(rows, version.run_id, target, settings.sinks.table)
        except (OSError, *module.ERRORS) as error:
            reason = " ".join(str(getattr(error, "orig", None) or error).split())
            failed.append(f"sinks.{sink} {target} did not take them ({reason})")
            continue
        record = {"place": _place(sink, settings), "run_id": version.run_id}
        run.folder.write_record(DELIVERED, _record(run) | {sink: record})
        log.info("results %s are delivered to sinks.%s", version.run_id, sink)
    if failed:
        raise InfrastructureError(
            f"results {version.run_id} are published, but {', and '.join(failed)}: run "
            "again to deliver them"
        )
    return names


def refuse_other(stored: Mapping[str, str], new: Mapping[str, str], where: str) -> None:
    """Refuse a table without the key's columns, or with columns of other types.

    Columns are in the store and new, with their types; `where` is a setting and its
    value.
    """
    for name in KEY:
        if name not in stored:
            raise SettingsError(
                f"the table in {where} has no column {name!r}, so it belongs to "
                f"something else: set {where.partition(' ')[0]} to another one"
            )
    for name, kind in new.items():
        if stored.get(name, kind) != kind:
            raise SettingsError(
                f"column {name!r} of the table in {where} is {stored[name]} and this "
                f"run's is {kind}: set {where.partition(' ')[0]} to another one"
            )


def _targets(settings: Settings) -> dict[str, str]:
    values = {sink: getattr(settings.sinks, sink) for sink in SINKS}
    return {sink: target for sink, target in values.items() if target}


def _place(sink: str, settings: Settings) -> list[str]:
    """Where a store's rows go, without credentials."""
    return [redacted(_targets(settings)[sink]), settings.sinks.table]


def _record(run: RunDirectory) -> dict[str, object]:
    try:
        return run.folder.read_record(DELIVERED) or {}
    except DamagedError:
        return {}  # delivering again has no effect
