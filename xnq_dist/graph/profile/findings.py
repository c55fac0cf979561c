"""What looks wrong in the profiled tables: one function for each suspicion.

A suspicion is a warning where the meaning is plain, and a refusal where two meanings
are possible; ``checks.accept`` accepts those of `core.settings.Code`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from xnq_dist.core.settings import Settings
from xnq_dist.graph.labels import ROLES
from xnq_dist.graph.profile.columns import ColumnProfile, TableProfile
from xnq_dist.graph.values import NULL_WORDS

__all__ = ["Finding", "Seen", "findings"]

MANY_CLASSES = 20
"""Classes above which labels are compared with names, ids and measurements."""
FEW_NUMBERS = 50
"""Whole numbers up to which they are classes, where each has some labels."""
LABELS_A_CLASS = 3
"""Mean number of labels below which that many classes look like names."""
FEWEST_LABELS = 2
"""Labels that every class needs."""
MATCHED, MOST_MATCHED = 0.5, 0.95
"""Shares of matching rows below which they are refused, or worth a warning."""
SHOWN = 4
"""Examples in a message."""
IS_ID = (
    "equals the node id: leave it out of columns.features, or set "
    "checks.accept=[feature-id]"
)
IS_NUMBERED = (
    "numbers the rows, so it tells nothing about a node: name the other features in "
    "columns.features"
)
IS_INDEX = (
    "has a name of pandas' row numbers, so it is no feature: name it in "
    "columns.features to use it"
)
UNITS = (1, 1e3, 1e6, 1e9)
"""Of Unix times, in parts of a second."""


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong."""

    code: str
    level: Literal["refusal", "warning", "note"]
    table: str
    text: str
    """The sentence for the user, with the setting or the correction."""
    column: str | None = None
    """The column, if the finding is about one."""


@dataclass(frozen=True)
class Seen:
    """The profiled tables with the settings that they are read with."""

    settings: Settings
    nodes: TableProfile
    edges: TableProfile | None = None
    memberships: TableProfile | None = None

    @property
    def label(self) -> ColumnProfile:
        """The column of the labels."""
        found = self.nodes.column(self.settings.columns.label)
        return found or ColumnProfile(self.settings.columns.label, "empty", 0, 0)

    @property
    def missing(self) -> list[Any]:
        """Values that mean unlabelled."""
        named = self.settings.labels.missing
        values = [value for value, _ in self.label.levels]
        if named == "auto":
            return [value for value in values if is_null_word(value)]
        return [value for value in values if text_of_label(value) in named]

    @property
    def classes(self) -> tuple[tuple[Any, int], ...]:
        """The classes and their labelled nodes, in the order of the classes."""
        counted = self.nodes.facts.get("classes", ())
        return tuple((value, rows) for value, rows, *_ in counted)

    @property
    def labelled(self) -> int:
        """Number of labelled nodes."""
        return sum(rows for _, rows in self.classes)

    @property
    def other_roles(self) -> list[tuple[Any, int]]:
        """Roles that are not in `ROLES`, and their nodes."""
        column = self.nodes.column(self.settings.columns.role)
        return [
            (value, rows)
            for value, rows in (column.levels if column else ())
            if not is_null_word(value) and value.strip().lower() not in ROLES
        ]


Found = tuple[str, dict[str, Any]]
"""Code of a finding and what its sentence names; ``table`` and ``level`` replace those
of its entry in ``findings.yaml``."""
Check = Callable[[Seen], Iterator[Found]]


def text_of_label(value: Any) -> str:
    """A label as `labels.missing` names it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_null_word(value: Any) -> bool:
    """Whether a text means that there is no label."""
    return isinstance(value, str) and value.strip() in NULL_WORDS


@cache
def sentences() -> dict[str, dict[str, Any]]:
    """The entries of ``findings.yaml`` by code."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return entries


def findings(seen: Seen) -> tuple[Finding, ...]:
    """All findings; what ``checks.accept`` names is a note, or left out."""
    accepted, columns = set(seen.settings.checks.accept), seen.settings.columns
    named = {
        "label": f"label column {seen.label.name!r} of {seen.nodes.path}",
        "role": f"role column {columns.role!r} of {seen.nodes.path}",
        "labelled": seen.labelled,
    }
    found = []
    for code, values in (each for check in CHECKS for each in check(seen)):
        entry = sentences()[code] | values
        level, text = entry["level"], entry["text"].format(**named, **values)
        if code in accepted and level == "refusal":
            level, text = "note", f"accepted by checks.accept: {text.split(': ')[0]}"
        elif code in accepted:
            continue
        about = {"label": columns.label, "role": columns.role}
        column = values.get("column", about.get(code.partition("-")[0]))
        found.append(Finding(code, level, entry["table"], text, column))
    return tuple(found)


def listed(pairs: Sequence[tuple[Any, int]]) -> str:
    """Values with their numbers of nodes."""
    shown = [f"{_quoted(value)} ({rows:,})" for value, rows in pairs[:SHOWN]]
    more = [f"and {len(pairs) - SHOWN} more"] if len(pairs) > SHOWN else []
    return ", ".join([*shown, *more])


def _quoted(value: Any) -> str:
    return repr(value) if isinstance(value, str) else text_of_label(value)


def _setting(seen: Seen, more: Iterable[Any]) -> str:
    """The setting that takes more values as unlabelled."""
    values = [*seen.missing, *more]
    return f"labels.missing=[{', '.join(map(text_of_label, values))}]"


def null_words(seen: Seen) -> Iterator[Found]:
    """Words such as NA among the labels."""
    words = [(v, n) for v, n in seen.label.levels if is_null_word(v)]
    if words and seen.settings.labels.missing == "auto":
        total = sum(rows for _, rows in words)
        yield "label-null-word", {"total": total, "words": listed(words)}


def odd_label(seen: Seen) -> Iterator[Found]:
    """-1 or one word among numbers; -1 and 1 alone are two classes."""
    rows = {text_of_label(v): n for v, n in seen.label.levels if not is_null_word(v)}
    words = [text for text in rows if not re.fullmatch(r"\s*[-+.\d]+\s*", text)]
    odd = words[0] if words else "-1"
    others = sorted(rows.keys() - {odd})
    codes = all(map(str.isdecimal, others)) and others not in ([], ["1"])
    known = (len(words) == 1 and len(others) > 1) or (
        odd in rows and not words and codes
    )
    if known and seen.settings.labels.missing == "auto":
        shown = repr(odd) if words else odd
        named = {"odd": shown, "rows": rows[odd], "others": ", ".join(others[:SHOWN])}
        yield "label-odd", named | {"setting": _setting(seen, [odd])}


def label_case(seen: Seen) -> Iterator[Found]:
    """Labels such as bot and Bot."""
    groups: dict[str, list[tuple[Any, int]]] = {}
    for value, rows in seen.classes:
        folded = " ".join(str(value).split()).casefold()
        groups.setdefault(folded, []).append((value, rows))
    for group in [group for group in groups.values() if len(group) > 1][:1]:
        yield "label-case", {"words": listed(group)}


def label_ids(seen: Seen) -> Iterator[Found]:
    """A name, an id or a measurement as label column."""
    label, count = seen.label, seen.nodes.facts.get("n_classes", 0)
    if count <= MANY_CLASSES:
        return
    steps = label.low in (0, 1) and label.high - label.low + 1 == label.distinct
    if seen.labelled < LABELS_A_CLASS * count:
        what = f"classes for {seen.labelled:,} labelled nodes, so it looks like an id"
    elif label.kind not in ("integers", "numbers") or steps:
        return
    elif label.kind == "integers" and count <= FEW_NUMBERS:
        return  # such as numbers of departments
    else:
        span = f"{label.low:g} to {label.high:g}"
        what = f"different numbers from {span}, so it looks like a measurement"
    named = seen.settings.columns
    used = {named.node_id, named.label, named.role, str(named.features)}
    others = [n for n in seen.nodes.facts["names"] if n not in used]
    there = f" (there are {', '.join(others[:6])})" if others else ""
    yield "label-ids", {"what": f"{count:,} {what}", "there": there}


def label_counts(seen: Seen) -> Iterator[Found]:
    """No labels, a single class, or a class with too few."""
    classes = seen.classes
    few = [value for value, rows in classes if rows < FEWEST_LABELS]
    if not seen.label.rows:
        return
    if not classes:
        what = "is null for every node: label some nodes to learn from"
    elif len(classes) == 1:
        name = _quoted(classes[0][0])
        what = f"holds a single class, {name}: label nodes of at least two classes"
    elif few and (2 * len(few) <= len(classes) or len(classes) <= MANY_CLASSES):
        what = (
            f"has 1 labelled node of class {_quoted(few[0])} and every class needs "
            f"{FEWEST_LABELS}: label another one, or set {_setting(seen, few)} to "
            "leave the class out"
        )
    else:
        return
    because = ""
    if seen.other_roles:
        because = f" (labels with a role other than {' and '.join(ROLES)} do not count)"
    yield "label-few", {"because": because, "what": what}


def roles(seen: Seen) -> Iterator[Found]:
    """Roles besides train and calibration, and classes that lack one of them."""
    if others := seen.other_roles:
        total = sum(rows for _, rows in others)
        yield "role-other", {"total": total, "words": listed(others)}
    counted = seen.nodes.facts.get("classes", ())
    for at, role in enumerate(ROLES, 1):
        lacking = [_quoted(value) for value, *rows in counted if not rows[at]]
        if lacking and any(train + calibration for *_, train, calibration in counted):
            names = ", ".join(lacking[:SHOWN])
            yield "role-class", {"names": names, "lacking": role}


def features(seen: Seen) -> Iterator[Found]:
    """The id, numbers of rows or a copy of the label among the features."""
    facts, named = seen.nodes.facts, seen.settings.columns.features
    for name in facts.get("copies", ()):
        yield "feature-label", {"column": name, "path": seen.nodes.path}
    like_ids = dict.fromkeys(facts.get("same_as_id", ()), ("refusal", IS_ID))
    # A list column `features` is used alone.
    if named == "auto" and "features" not in facts.get("names", ()):
        for name in facts.get("indexes", ()):
            if name != seen.settings.columns.node_id:
                like_ids[name] = "note", IS_INDEX
    if named == "auto" and seen.nodes.rows > MANY_CLASSES:
        for name in facts.get("numbered", ()):
            like_ids.setdefault(name, ("warning", IS_NUMBERED))
    for name, (level, what) in like_ids.items():
        about = {"column": name, "path": seen.nodes.path}
        yield "feature-id", about | {"level": level, "what": what}


def weights(seen: Seen) -> Iterator[Found]:
    """Weights that are all zero, or that are times or numbers of rows."""
    weight = seen.settings.columns.weight
    column = seen.edges.column(weight) if seen.edges else None
    if seen.edges and column and column.rows and (what := _not_weights(column)):
        shown = {"column": weight, "path": seen.edges.path}
        yield "weight-unlikely", shown | {"what": what}


def _not_weights(column: ColumnProfile) -> str:
    """What the values of a column are if they can hardly be weights; empty: they can.

    Unix times are between the years 2000 and 2100, in seconds or a smaller unit.
    """
    low, high = column.low, column.high
    if high == 0:
        return "are 0"
    if any(low / unit >= 946_684_800 and high / unit < 4_102_444_800 for unit in UNITS):
        return f"look like Unix times ({low:.0f} to {high:.0f})"
    rows = column.rows
    counted = low in (0, 1) and high - low + 1 == rows
    numbered = counted and column.distinct in (None, rows) and rows > MANY_CLASSES
    return "number the rows" if numbered else ""


def ids(seen: Seen) -> Iterator[Found]:
    """Ids of nodes that are not in the node table."""
    for table in filter(None, (seen.edges, seen.memberships)):
        if not table.facts["unknown"]:
            continue
        facts, what = table.facts, "edges" if table == seen.edges else "memberships"
        (column, value, row), matched = facts["unknown"], facts["matched"]
        about = {"table": what, "what": what, "rows": table.rows, "matched": matched}
        spaces = value[1:-1] != value[1:-1].strip()
        about["spaces"] = f"; spaces in ids such as {value} count" if spaces else ""
        share = matched / table.rows
        if seen.settings.input.unknown_nodes == "drop":
            if share < MOST_MATCHED:
                level = "refusal" if share < MATCHED else "warning"
                shown = {"path": table.path, "share": 100 * share, "level": level}
                yield "few-matches", about | shown
            continue
        advice = "add the nodes, or set input.unknown_nodes=drop"
        if not matched:
            advice = f"the node ids are such as {facts['node']}, write both alike"
        first = {"column": column, "value": value, "row": row, "advice": advice}
        yield "unknown-nodes", about | first | {"lost": table.rows - matched}


def communities(seen: Seen) -> Iterator[Found]:
    """A column of communities without any."""
    name = seen.settings.communities.removeprefix("column:")
    column = seen.nodes.column(name)
    if column and column.rows == column.nulls and name != seen.settings.communities:
        yield "community-names", {"column": name, "path": seen.nodes.path}


CHECKS: tuple[Check, ...] = (
    null_words,
    odd_label,
    label_case,
    label_ids,
    label_counts,
    roles,
    features,
    ids,
    weights,
    communities,
)
