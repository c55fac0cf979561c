"""What looks wrong in the profiled tables, and may not be meant.

A finding refuses the run; ``checks.accept`` accepts those of `core.sections.Code`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from xnq_dist.core.settings import Settings
from xnq_dist.graph.labels import ROLES

__all__ = ["Finding", "findings"]

Facts = Mapping[str, Any]
"""What was counted in a table (`profile.matching`), with its ``path``."""

MANY_CLASSES = 20
"""Classes above which labels are compared with names, ids and measurements."""
FEW_NUMBERS = 50
"""Whole numbers up to which they are classes, where each has some labels."""
LABELS_A_CLASS = 3
"""Mean number of labels below which that many classes look like names."""
UNLABELLED = {"unknown", "unlabelled", "unlabeled", "undefined", "none", "-"}
"""Labels, without case, that hardly name a class."""
FEWEST_LABELS = 2
"""Labels that every class needs."""
MATCHED = 0.5
"""Share of matching rows below which they are refused."""
LIGHTEST = 1e-30
"""Weights below it are lost in float32, also when the spectral radius divides them."""


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong."""

    code: str
    table: str
    text: str
    """The sentence for the user, with the setting or the correction."""
    column: str | None = None
    """The column, if the finding is about one."""
    level: Literal["refusal", "note"] = "refusal"
    """A note: it is accepted."""


def findings(settings: Settings, tables: Mapping[str, Facts]) -> tuple[Finding, ...]:
    """All findings in the facts of the tables, by key of `TITLES`."""
    found: list[Finding] = []
    if nodes := tables.get("labels") or tables.get("nodes"):
        found += [*_labels(settings, nodes), *_roles(settings, nodes)]
        found += [*_features(nodes), *_communities(settings, nodes)]
    for name in ("edges", "memberships"):
        found += _ids(settings, name, tables[name]) if name in tables else ()
    if tables.get("edges", {}).get("heaviest", 1) < LIGHTEST:
        column, path = settings.columns.weight, tables["edges"]["path"]
        text = (
            f"all weights in column {column!r} of {path} are 0 or below "
            f"{LIGHTEST:g}: scale them up, or set columns.weight=null to use edges "
            "without weights"
        )
        found.append(Finding("weight-zero", "edges", text, column))
    return tuple(
        replace(each, level="note", text=f"accepted: {each.text.split(': ')[0]}")
        if each.code in settings.checks.accept
        else each
        for each in found
    )


def _labels(settings: Settings, nodes: Facts) -> Iterator[Finding]:
    """Yield what looks wrong in the column of labels."""
    counts = {value: rows for value, rows, *_ in nodes["classes"]}
    column = settings.columns.label
    where = f"label column {column!r} of {nodes['path']}"

    def missing(value: Any) -> str:
        """The setting that takes one more value as unlabelled."""
        named = settings.labels.missing
        values = [*(nodes["unlabelled"] if named == "auto" else named), value]
        return f"labels.missing=[{', '.join(map(str, values))}]"

    def found(code: str, text: str) -> Finding:
        return Finding(code, "nodes", f"{where} {text}", column)

    judged = settings.labels.missing == "auto"
    if judged and (odd := _odd_label(counts)) is not None:
        yield found(
            "label-odd",
            f"holds {odd!r} ({counts[odd]:,} nodes), unlike a class: set "
            f"{missing(odd)} if it means unlabelled, or labels.missing=[] if it is a "
            "class",
        )
    written: dict[str, Any] = {}
    for value in counts:
        folded = " ".join(str(value).split()).casefold()
        if (other := written.setdefault(folded, value)) != value:
            yield found(
                "label-case",
                f"holds {other!r} and {value!r}, which differ by case or spaces alone: "
                "write them alike, or set checks.accept=[label-case]",
            )
            break
    if _are_ids(nodes):
        yield found(
            "label-ids",
            f"has {nodes['n_classes']:,} values for {nodes['labelled']:,} labelled "
            "nodes, so it looks like an id or a measurement: set columns.label to the "
            "column of the classes, group the values into classes, or set "
            "checks.accept=[label-ids]",
        )
    few = [value for value, rows in counts.items() if rows < FEWEST_LABELS]
    if not counts:
        only = f"has no label (a role other than {' and '.join(ROLES)} counts as none)"
        yield found("label-few", f"{only}: label some nodes to learn from")
    elif len(counts) == 1:
        yield found(
            "label-few",
            f"holds the single class {next(iter(counts))!r}: label nodes of two",
        )
    elif few and (2 * len(few) <= len(counts) or len(counts) <= MANY_CLASSES):
        yield found(
            "label-few",
            f"has 1 labelled node of class {few[0]!r} and every class needs "
            f"{FEWEST_LABELS}: label another one, or set {missing(few[0])} to leave "
            "the class out",
        )


def _odd_label(counts: Mapping[Any, int]) -> Any:
    """A word of `UNLABELLED`, or -1 or the one word among several numbers, or None."""
    for value in counts:
        if str(value).casefold() in UNLABELLED:
            return value
    words = [v for v in counts if not re.fullmatch(r"\s*[-+.\d]+\s*", str(v))]
    odd = words or [value for value in counts if str(value) == "-1"]
    others = {str(value) for value in counts if value not in odd}
    known = len(others) > 1 or others == {"0"}
    return odd[0] if len(odd) == 1 and known else None


def _are_ids(nodes: Facts) -> bool:
    """Whether there are as many classes as of names, ids or measurements."""
    count, classes = nodes["n_classes"], nodes["classes"]
    if count <= MANY_CLASSES or nodes["labelled"] < LABELS_A_CLASS * count:
        return bool(count > MANY_CLASSES)
    low, high = classes[0][0], classes[-1][0]
    if not isinstance(low, int) or count <= FEW_NUMBERS:
        return False  # such as numbers of departments
    return not (low in (0, 1) and high - low + 1 == count)


def _roles(settings: Settings, nodes: Facts) -> Iterator[Finding]:
    """Yield a finding for each role that some classes lack, if there are roles."""
    column, counted = settings.columns.role, nodes["classes"]
    used = any(train + calibration for *_, train, calibration in counted)
    for at, role in enumerate(ROLES, 2):
        lacking = [repr(row[0]) for row in counted if not row[at]]
        if used and lacking:
            text = (
                f"role column {column!r} of {nodes['path']}: no node of class "
                f"{', '.join(lacking[:4])} has the role {role!r}; give each class both "
                "roles, or leave the column out to cross-fit"
            )
            yield Finding("role-class", "nodes", text, column)


def _features(nodes: Facts) -> Iterator[Finding]:
    """Yield copies of the label and of the id among the features."""
    for name in nodes["copies"]:
        text = (
            f"feature column {name!r} of {nodes['path']} is a copy of the label (on "
            f"all {nodes['labelled']:,} labelled nodes each class has one value of its "
            "own): leave it out of columns.features and columns.scores, or set "
            "checks.accept=[feature-label]"
        )
        yield Finding("feature-label", "nodes", text, name)
    for name in nodes["same_as_id"]:
        text = (
            f"column {name!r} of {nodes['path']} equals the node id: leave it out of "
            "columns.features, or set checks.accept=[feature-id]"
        )
        yield Finding("feature-id", "nodes", text, name)


def _ids(settings: Settings, what: str, table: Facts) -> Iterator[Finding]:
    """Yield a finding if ids of nodes are not in the node table."""
    if not table["unknown"]:
        return
    (column, value, row), rows = table["unknown"], table["rows"]
    matched = table["matched"]
    if settings.input.unknown_nodes == "error":
        text = (
            f"{rows - matched:,} of {rows:,} {what} name a node that is not in the "
            f"node table (the first: {value} in column {column!r}, {row}; the node ids "
            f"are such as {table['node']}): write the ids alike, add the nodes, or set "
            "input.unknown_nodes=drop"
        )
        yield Finding("unknown-nodes", what, text, column)
    elif matched < MATCHED * rows:
        text = (
            f"{matched:,} of {rows:,} {what} name nodes of the node table, and the "
            f"others are left out (input.unknown_nodes=drop): check that "
            f"{table['path']} is not of another graph, or set "
            "checks.accept=[few-matches]"
        )
        yield Finding("few-matches", what, text, column)


def _communities(settings: Settings, nodes: Facts) -> Iterator[Finding]:
    """Yield a finding for a column of communities without any."""
    if nodes.get("in_communities") == 0:
        name = settings.communities.removeprefix("column:")
        text = (
            f"column {name!r} of {nodes['path']} has no value: name another column in "
            "communities=column:NAME"
        )
        yield Finding("community-names", "nodes", text, name)
