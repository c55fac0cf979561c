"""Which columns of a node table can be features, by their types alone."""

from __future__ import annotations

import re
from collections import defaultdict

import pyarrow as pa
import pyarrow.types as pt

from xnq_dist.core.sections import ColumnSettings
from xnq_dist.core.settings import Settings
from xnq_dist.graph.tables import Table
from xnq_dist.graph.values import is_text

__all__ = ["LEVELS", "chosen_columns", "kind_of"]

LEVELS = 32
"""Values of a text column that become one column each, the most frequent ones. Hashing
all values into as many columns had 2 % more log-loss (117 majors and 58 dorms of 5,180
students, 60 and 6 % labelled, four draws)."""

INDEX = re.compile(r"Unnamed: \d+|index|level_\d+|__index_level_\d+__")
"""Names that pandas gives to the numbers of rows when it writes them as a column."""


def kind_of(kind: pa.DataType) -> str | None:
    """``number``, ``date`` or ``text``; None: cannot be a feature."""
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if is_text(kind):
        return "text"
    if pt.is_date(kind) or pt.is_timestamp(kind):
        return "date"
    numbers = (
        pt.is_integer,
        pt.is_floating,
        pt.is_decimal,
        pt.is_null,
        pt.is_duration,
        pt.is_boolean,
    )
    return "number" if any(test(kind) for test in numbers) else None


def chosen_columns(table: Table, settings: Settings) -> ColumnSettings:
    """The column settings with `columns.features` = ``auto`` replaced by names.

    A list column ``features`` is used if there is one, else all columns that can be
    features, by name, except those that other settings name and integers with a name of
    pandas' index; None: there are none.

    Raises
    ------
    InputError
        When only some files have one of these columns.
    """
    columns = settings.columns
    if columns.features != "auto":
        return columns
    kinds: dict[str, list[pa.DataType]] = defaultdict(list)
    for there in table.schemas.values():
        for name, kind in there.items():
            kinds[name].append(kind)
    chosen: str | list[str] | None = "features"
    if not (table.has("features") and any(map(pt.is_nested, kinds["features"]))):
        place = settings.communities.removeprefix("column:")
        taken = {
            columns.node_id,
            columns.label,
            columns.role,
            columns.label_weight,
            *columns.scores,
            place,
        }
        chosen = [
            name
            for name, there in sorted(kinds.items())
            if name not in taken
            and any(map(kind_of, there))
            and not (INDEX.fullmatch(name) and all(map(pt.is_integer, there)))
            and table.has(name)
        ]
    return columns.model_copy(update={"features": chosen or None})
