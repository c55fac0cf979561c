"""Sections of the settings on the user's tables: how they are read and checked."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from xnq_dist.core.settings.section import Section, Size
from xnq_dist.core.sizes import parse_bytes

__all__ = [
    "TITLES",
    "CheckSettings",
    "Code",
    "ColumnSettings",
    "FeatureSettings",
    "InputSettings",
    "Reading",
]

Code = Literal[
    "column-case",
    "community-case",
    "feature-id",
    "feature-label",
    "few-matches",
    "id-spaces",
    "isolated",
    "label-case",
    "label-ids",
    "label-measured",
    "label-mixed",
    "label-null-word",
    "loops",
    "role-other",
    "some-matches",
]
"""Findings of the profile that can be accepted."""
TABLES = {
    "node table": "nodes",
    "edge table": "edges",
    "memberships table": "memberships",
    "table of labels": "labels",
}
"""Keys of the settings' mappings, by the tables' names in messages."""

TITLES = {key: title for title, key in TABLES.items()}
"""The tables' names in messages, by key."""

TableKey = Literal["nodes", "edges", "memberships", "labels"]


class ColumnSettings(Section):
    """Names of the columns in the user's tables."""

    node_id: str = Field("node_id", description="node id in the node table")
    features: str | list[str] | None = Field(
        "auto",
        description="features: one fixed-size-list column, or a list of columns "
        "(numbers, booleans, dates, text); auto: the list column `features` if there "
        "is one, else all columns that no other setting names; null: use the graph "
        "alone",
    )
    label: str = Field(
        "label",
        description="class label in the node table; a null label means unlabelled",
    )
    role: str = Field(
        "role",
        description="optional column that says what a label is used for: `train` or "
        "`calibration`",
    )
    label_weight: str | None = Field(
        None,
        description="inclusion weight of a labelled node: 1 / the probability that it "
        "was chosen for labelling; needs labels.drawn=weighted",
    )
    src: str = Field("src", description="source node in the edge table")
    dst: str = Field("dst", description="target node in the edge table")
    weight: str = Field("weight", description="optional edge weight in the edge table")
    community: str = Field(
        "community", description="community in the memberships table"
    )
    member: str = Field("node_id", description="node id in the memberships table")

    @model_validator(mode="after")
    def _different(self) -> ColumnSettings:
        pairs = (("src", "dst"), ("member", "community"), ("node_id", "label"))
        for first, second in pairs:
            if (name := getattr(self, first)) == getattr(self, second):
                raise ValueError(
                    f"columns.{first} and columns.{second} both name {name!r}: give "
                    "each its own column"
                )
        return self


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


class InputSettings(Section):
    """How the tables are read."""

    directed: bool = Field(
        False,
        description="true: edges have a direction; false: the reverse of every edge is "
        "added where it is missing",
    )
    self_loops: Literal["keep", "drop"] = Field(
        "keep", description="what to do with edges from a node to itself"
    )
    duplicates: Literal["drop", "sum"] = Field(
        "drop",
        description="what to do with duplicate edges: drop keeps one, sum adds their "
        "weights",
    )
    unknown_nodes: Literal["error", "drop"] = Field(
        "error",
        description="what to do with edges and memberships of nodes that are not in "
        "the node table",
    )
    memory: Size = Field(
        "1 GiB",
        description="memory for sorting the edges, on CPU or GPU, and for Leiden",
    )
    engine: Literal["auto", "cpu", "cudf"] = Field(
        "auto",
        description="engine that reads the edge table (same result); auto: cudf with "
        "cluster.kind=cuda where it is installed, else cpu",
    )

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

    @property
    def memory_bytes(self) -> int:
        """Memory for the edge sort in bytes."""
        return parse_bytes(self.memory)

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


class FeatureSettings(Section):
    """How feature columns are prepared for the reservoir."""

    scale: Literal["auto", "robust", "none"] = Field(
        "auto",
        description="auto: standardise named columns, and the columns of a list whose "
        "values are out of the ordinary range; robust: standardise all columns; none: "
        "use the unchanged values of the table",
    )
    levels: int = Field(
        20,
        ge=1,
        le=10_000,
        description="number of values up to which a text column becomes one column of "
        "0 and 1 for each value",
    )
    hashed: int = Field(
        32,
        ge=1,
        le=10_000,
        description="number of columns that text with more values is hashed into",
    )


class CheckSettings(Section):
    """What the profile of the tables (`xnq-dist profile`) accepts."""

    accept: tuple[Code, ...] = Field(
        (),
        description="findings to accept: a refusal becomes a note, a warning is left "
        "out; each finding's text starts with its code",
    )
