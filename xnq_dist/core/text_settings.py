"""How text tables are written: the part of the section `input` that readers use."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from xnq_dist.core.settings_sections import InputSettings

__all__ = ["TITLES", "ReadSettings", "Reading"]

TABLES = {
    "node table": "nodes",
    "edge table": "edges",
    "memberships table": "memberships",
    "table of parents": "parents",
    "table of labels": "labels",
    "benchmark table": "benchmark",
}
"""Keys of the settings' mappings, by the tables' names in messages."""
TITLES = {key: title for title, key in TABLES.items()}
"""The tables' names in messages, by key."""

TableKey = Literal["nodes", "edges", "memberships", "parents", "labels", "benchmark"]


@dataclass(frozen=True)
class Reading:
    """How one table is written; ``auto`` is detected in each file."""

    separator: str = "auto"
    encoding: str = "auto"
    quote: str = "auto"
    nulls: tuple[str, ...] | Literal["auto"] = "auto"
    header: bool | Literal["auto"] = "auto"
    decimal: str = "auto"
    compression: str = "auto"


def _character(value: Any) -> Any:
    named = {"tab": "\t", "\\t": "\t", "space": " ", None: "none"}
    named |= {"comma": ",", "semicolon": ";", "bar": "|"}
    return named.get(value, value) if isinstance(value, str | None) else value


def _one(value: str) -> str:
    if len(value) != 1 and value not in ("auto", "none"):
        raise PydanticCustomError(
            "character", "one character, comma, semicolon, bar, tab, space or auto"
        )
    return value


def _codec(name: str) -> str:
    try:
        return name if name == "auto" else codecs.lookup(name).name
    except LookupError as error:
        raise PydanticCustomError(
            "codec", "auto or an encoding such as utf-8, cp1252 or utf-16"
        ) from error


Character = Annotated[str, BeforeValidator(_character), AfterValidator(_one)]
Codec = Annotated[str, AfterValidator(_codec)]
T = TypeVar("T")
ByTable: TypeAlias = T | dict[TableKey, T]
"""One value, or values of single tables."""


def _detected(text: str) -> Any:
    """A field with the default ``auto``."""
    more = "; a mapping such as {nodes: VALUE} sets single tables"
    return Field("auto", description=f"text tables: {text}{more}")


class ReadSettings(InputSettings):
    """How the tables are read."""

    separator: ByTable[Character] = _detected(
        "character between the fields, tab or space; auto: detected"
    )
    encoding: ByTable[Codec] = _detected(
        "such as utf-8, cp1252 or utf-16; auto: by the byte order mark, else UTF-8, "
        "else cp1252"
    )
    quote: ByTable[Character] = _detected(
        "character around a field, or none; auto: detected"
    )
    nulls: ByTable[Literal["auto"] | tuple[str, ...]] = _detected(
        "words for null in all columns; auto: NA, NaN, null, None, ? and the like in "
        "columns of numbers and dates. An empty cell is always null"
    )
    header: ByTable[Literal["auto"] | bool] = _detected(
        "whether the first row has the column names; without them columns are named "
        "column1, column2, ...; auto: detected"
    )
    decimal: ByTable[Literal["auto", ".", ","]] = _detected(
        "decimal separator; auto: detected"
    )
    compression: ByTable[Literal["auto", "none", "gzip", "bz2", "zstd", "lz4"]] = (
        _detected("compression; auto: by the file's first bytes")
    )

    def reading(self, what: str) -> Reading:
        """The settings of one table, by its name in messages."""
        values = {each.name: getattr(self, each.name) for each in fields(Reading)}
        key = TABLES.get(what)
        return Reading(
            **{
                name: value.get(key, "auto") if isinstance(value, dict) else value
                for name, value in values.items()
            }
        )
