"""Sections of the settings on the user's tables: how they are read and checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from xnq_dist.core.settings.section import Section, Size
from xnq_dist.core.sizes import parse_bytes

__all__ = [
    "TITLES",
    "CheckSettings",
    "Code",
    "ColumnSettings",
    "FeatureSettings",
    "InputSettings",
]

Code = Literal[
    "feature-id",
    "feature-label",
    "few-matches",
    "label-case",
    "label-ids",
]
"""Findings of the profile that can be accepted."""
TITLES = {
    "nodes": "node table",
    "edges": "edge table",
    "memberships": "memberships table",
    "labels": "table of labels",
}
"""The tables' names in messages, by key."""


class ColumnSettings(Section):
    """Names of the columns in the user's tables."""

    node_id: str = "node_id"
    """node id in the node table"""
    features: str | list[str] | None = "auto"
    """features: one fixed-size-list column, or a list of columns (numbers, booleans,
    dates, text); auto: the list column `features` if there is one, else all columns
    that no other setting names; null: use the graph alone"""
    scores: list[str] = Field([])
    """columns of the node table with another model's probabilities or scores, such as a
    vendor's; empty: there are none"""
    label: str = "label"
    """class label in the node table; a null label means unlabelled"""
    role: str = "role"
    """optional column that says what a label is used for: `train` or `calibration`"""
    label_weight: str | None = None
    """inclusion weight of a labelled node: 1 / the probability that it was chosen for
    labelling; needs labels.drawn=weighted"""
    src: str = "src"
    """source node in the edge table"""
    dst: str = "dst"
    """target node in the edge table"""
    weight: str | None = "weight"
    """optional edge weight in the edge table; null: edges have none"""
    community: str = "community"
    """community in the memberships table"""
    member: str = "node_id"
    """node id in the memberships table"""

    def faults(self) -> Iterator[str]:
        """Columns that are named twice."""
        pairs = (("src", "dst"), ("member", "community"), ("node_id", "label"))
        for first, second in pairs:
            if (name := getattr(self, first)) == getattr(self, second):
                yield (
                    f"columns.{first} and columns.{second} both name {name!r}: give "
                    "each its own column"
                )
        named = [self.node_id, self.label, self.role, self.label_weight, *self.scores]
        for name in dict.fromkeys(self.scores):
            if named.count(name) > 1:
                yield (
                    f"columns.scores names {name!r}, which columns names a second "
                    "time: give each its own column"
                )


def _character(value: Any) -> Any:
    named = {
        "tab": "\t",
        "\\t": "\t",
        "space": " ",
        "comma": ",",
        "semicolon": ";",
        "bar": "|",
    }
    return named.get(str(value), value)


Character = Annotated[
    str, BeforeValidator(_character), Field(pattern=r"^(auto|[\s\S])$")
]


class InputSettings(Section):
    """How the tables are read."""

    directed: bool = False
    """true: edges have a direction; false: the reverse of every edge is added where it
    is missing"""
    duplicates: Literal["drop", "sum"] = "drop"
    """what to do with duplicate edges: drop keeps one, sum adds their weights"""
    unknown_nodes: Literal["error", "drop"] = "error"
    """what to do with edges and memberships of nodes that are not in the node table"""
    memory: Size = "1 GiB"
    """memory for sorting the edges, on CPU or GPU, and for Leiden"""
    separator: Character = "auto"
    """text tables: character between the fields, or its name (comma, semicolon, bar,
    tab, space); auto: detected"""
    header: Literal["auto"] | bool = "auto"
    """text tables: whether the first row has the column names; without them columns are
    named column1, column2, ...; auto: detected"""
    decimal: Literal["auto", ".", ","] = "auto"
    """text tables: decimal separator; auto: detected"""

    @property
    def memory_bytes(self) -> int:
        """Memory for the edge sort in bytes."""
        return parse_bytes(self.memory)


class FeatureSettings(Section):
    """How feature columns are prepared for the reservoir."""

    scale: Literal["auto", "robust", "none"] = "auto"
    """auto: standardise named columns, and the columns of a list whose values are out
    of the ordinary range; robust: standardise all columns; none: use the unchanged
    values of the table"""


class CheckSettings(Section):
    """What the profile of the tables (`xnq-dist profile`) accepts."""

    accept: tuple[Code, ...] = ()
    """codes of findings to accept: they are notes then"""
