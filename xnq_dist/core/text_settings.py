"""How text tables are written: the part of the section `input` that readers use."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

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
Nulls = Literal["auto"] | tuple[str, ...]
Header = Literal["auto"] | bool
Decimal = Literal["auto", ".", ","]
Compression = Literal["auto", "none", "gzip", "bz2", "zstd", "lz4"]
BY_TABLE = "; a mapping such as {nodes: VALUE} sets single tables"


class ReadSettings(InputSettings):
    """How the tables are read."""

    separator: Character | dict[TableKey, Character] = Field(
        "auto",
        description="text tables: character between the fields, tab or space; auto: "
        "detected" + BY_TABLE,
    )
    encoding: Codec | dict[TableKey, Codec] = Field(
        "auto",
        description="text tables: such as utf-8, cp1252 or utf-16; auto: by the byte "
        "order mark, else UTF-8, else cp1252" + BY_TABLE,
    )
    quote: Character | dict[TableKey, Character] = Field(
        "auto",
        description="text tables: character around a field, or none; auto: detected"
        + BY_TABLE,
    )
    nulls: Nulls | dict[TableKey, Nulls] = Field(
        "auto",
        description="text tables: words for null in all columns; auto: NA, NaN, null, "
        "None, ? and the like in columns of numbers and dates. An empty cell is always "
        "null" + BY_TABLE,
    )
    header: Header | dict[TableKey, Header] = Field(
        "auto",
        description="text tables: whether the first row has the column names; without "
        "them columns are named column1, column2, ...; auto: detected" + BY_TABLE,
    )
    decimal: Decimal | dict[TableKey, Decimal] = Field(
        "auto",
        description="text tables: decimal separator; auto: detected" + BY_TABLE,
    )
    compression: Compression | dict[TableKey, Compression] = Field(
        "auto",
        description="text tables: compression; auto: by the file's first bytes"
        + BY_TABLE,
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
