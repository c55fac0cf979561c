"""What looks wrong in the profiled tables: one function for each suspicion.

A suspicion is a warning where the meaning is plain, and a refusal where two meanings
are possible; ``checks.accept`` accepts those of `core.check_settings.Code`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from xnq_dist.core.config import Settings
from xnq_dist.core.quantifiers import record_of
from xnq_dist.core.settings_sections import ColumnSettings
from xnq_dist.graph.labels import NULL_WORDS, ROLES
from xnq_dist.graph.profile.columns import LEVELS, ColumnProfile, TableProfile

__all__ = ["Finding", "Seen", "findings"]

MANY_CLASSES = 20
"""Classes above which labels are compared with names, ids and measurements."""
LABELS_A_CLASS = 3
"""Mean number of labels below which that many classes look like names."""
FEWEST_LABELS = 2
"""Labels that every class needs."""
MATCHED, MOST_MATCHED = 0.5, 0.95
"""Shares of matching rows below which they are refused, or worth a warning."""
ISOLATED = 0.5
SHOWN = 4
"""Examples in a message."""


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong."""

    code: str
    level: Literal["refusal", "warning", "note"]
    table: str
    text: str
    """The sentence for the user, with the setting or the correction."""


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
    def where(self) -> str:
        """The label column in messages."""
        return f"label column {self.label.name!r} of {self.nodes.path}"

    @cached_property
    def missing(self) -> tuple[tuple[Any, int], ...]:
        """Values that mean unlabelled, and their rows."""
        named = self.settings.labels.missing
        return tuple(
            (value, rows)
            for value, rows in self.label.levels
            if (
                is_null_word(value)
                if named == "auto"
                else text_of_label(value) in named
            )
        )

    @cached_property
    def classes(self) -> tuple[tuple[Any, int], ...]:
        """The classes and their labelled nodes, in the order of the classes."""
        roles = self.nodes.facts.get("by_role")
        if roles:
            counted = {value: sum(of) - of[2] for value, *of in roles}
        else:
            values = {value for value, _ in self.missing}
            counted = {v: n for v, n in self.label.levels if v not in values}
        whole = self.label.kind == "numbers"
        # Other tools write integers with nulls as floats.
        pairs = [(int(v) if whole else v, n) for v, n in counted.items() if n]
        return tuple(sorted(pairs, key=lambda pair: (str(type(pair[0])), pair[0])))

    @property
    def labelled(self) -> int:
        """Number of labelled nodes."""
        return self.label.rows - self.label.nulls - sum(n for _, n in self.missing)


Check = Callable[[Seen], Iterator[Finding]]


def text_of_label(value: Any) -> str:
    """A label as `labels.missing` names it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_null_word(value: Any) -> bool:
    """Whether a text means that there is no label."""
    return isinstance(value, str) and value.strip() in NULL_WORDS


def findings(seen: Seen) -> tuple[Finding, ...]:
    """All findings; what ``checks.accept`` names is a note, or left out."""
    accepted = set(seen.settings.checks.accept)
    found = []
    for check in CHECKS:
        for each in check(seen):
            if each.code not in accepted:
                found.append(each)
            elif each.level == "refusal":
                text = f"accepted by checks.accept: {each.text.partition(': ')[0]}"
                found.append(Finding(each.code, "note", each.table, text))
    return tuple(found)


def listed(pairs: Sequence[tuple[Any, int]]) -> str:
    """Values with their numbers of nodes."""
    shown = [f"{_quoted(value)} ({rows:,})" for value, rows in pairs[:SHOWN]]
    more = [f"and {len(pairs) - SHOWN} more"] if len(pairs) > SHOWN else []
    return ", ".join([*shown, *more])


def _quoted(value: Any) -> str:
    return repr(value) if isinstance(value, str) else text_of_label(value)


def _setting(values: Iterable[Any]) -> str:
    return f"labels.missing=[{', '.join(text_of_label(value) for value in values)}]"


def null_words(seen: Seen) -> Iterator[Finding]:
    """Words such as NA among the labels."""
    words = [(v, n) for v, n in seen.label.levels if is_null_word(v)]
    if words and seen.settings.labels.missing == "auto":
        total = sum(rows for _, rows in words)
        yield Finding(
            "label-null-word",
            "warning",
            "nodes",
            f"{seen.where}: {total:,} values are {listed(words)} and count as "
            "unlabelled: set labels.missing=[] to keep them as classes",
        )


def minus_one(seen: Seen) -> Iterator[Finding]:
    """-1 next to other codes."""
    values = {text_of_label(value): rows for value, rows in seen.label.levels}
    others = [v for v in values if v != "-1" and not is_null_word(v)]
    codes = all(re.fullmatch(r"\d+", value) for value in others)
    unset = seen.settings.labels.missing == "auto"
    if unset and "-1" in values and others and codes and set(others) != {"1"}:
        yield Finding(
            "label-minus-one",
            "refusal",
            "nodes",
            f"{seen.where} holds -1 ({values['-1']:,} nodes) next to "
            f"{', '.join(sorted(others)[:SHOWN])}: set labels.missing=[-1] if it means "
            "unlabelled, or labels.missing=[] if it is a class",
        )


def _variants(values: Iterable[tuple[Any, int]]) -> list[list[tuple[Any, int]]]:
    """Texts that differ by case or spaces alone."""
    groups: dict[str, list[tuple[Any, int]]] = {}
    for value, rows in values:
        if isinstance(value, str):
            folded = " ".join(value.split()).casefold()
            groups.setdefault(folded, []).append((value, rows))
    return [group for group in groups.values() if len(group) > 1]


def label_case(seen: Seen) -> Iterator[Finding]:
    """Labels such as bot and Bot."""
    for group in _variants(seen.classes)[:1]:
        yield Finding(
            "label-case",
            "refusal",
            "nodes",
            f"{seen.where} holds {listed(group)}, which differ by case or spaces "
            "alone: write them alike, or set checks.accept=[label-case] to keep them "
            "apart",
        )


def label_mixed(seen: Seen) -> Iterator[Finding]:
    """Numbers and one word."""
    texts = [(v, n) for v, n in seen.classes if isinstance(v, str)]
    words = [(v, n) for v, n in texts if not re.fullmatch(r"\s*[-+.\d]+\s*", v)]
    if len(words) == 1 and len(texts) > 2:
        (word, rows), missing = words[0], [v for v, _ in seen.missing]
        yield Finding(
            "label-mixed",
            "refusal",
            "nodes",
            f"{seen.where} holds numbers and the word {word!r} ({rows:,} nodes): set "
            f"{_setting([*missing, word])} if it means unlabelled, or "
            "checks.accept=[label-mixed] if it is a class",
        )


def label_ids(seen: Seen) -> Iterator[Finding]:
    """A name, an id or a measurement as label column."""
    label, labelled = seen.label, seen.labelled
    if not labelled:
        return
    count = LEVELS if label.distinct is None else len(seen.classes)
    names = seen.nodes.facts.get("names", ())
    others = [name for name in names if name not in _in_use(seen)]
    there = f" (there are {', '.join(others[:6])})" if others else ""
    shown = f"more than {LEVELS:,}" if label.distinct is None else f"{count:,}"
    if count > MANY_CLASSES and labelled < LABELS_A_CLASS * count:
        yield Finding(
            "label-ids",
            "refusal",
            "nodes",
            f"{seen.where} has {shown} classes for {labelled:,} labelled nodes, so it "
            "looks like a name or an id: set columns.label to the column of the "
            f"classes{there}, or checks.accept=[label-ids]",
        )
    elif (
        count > MANY_CLASSES
        and label.kind in ("integers", "numbers")
        and not (label.low in (0, 1) and label.high - label.low + 1 == label.distinct)
    ):
        yield Finding(
            "label-measured",
            "refusal",
            "nodes",
            f"{seen.where} holds {shown} different numbers from {label.low:g} to "
            f"{label.high:g}, so it looks like a measurement: group it into classes, "
            "or set checks.accept=[label-measured]",
        )


def _in_use(seen: Seen) -> set[str]:
    named = seen.settings.columns
    features = named.features if isinstance(named.features, list) else [named.features]
    return {named.node_id, named.label, named.role, *map(str, features)}


def label_counts(seen: Seen) -> Iterator[Finding]:
    """No labels, a single class, or a class with too few."""
    classes, roles = seen.classes, seen.nodes.facts.get("other_roles")
    if not seen.label.rows:
        return
    because = ""
    if roles:
        because = f" (labels with a role other than {' and '.join(ROLES)} do not count)"
    if " and " in seen.label.kind:
        yield Finding(
            "label-types",
            "refusal",
            "nodes",
            f"{seen.where} holds {seen.label.kind} in different files: write all as "
            "the same type",
        )
    if seen.label.distinct is None and seen.label.nulls < seen.label.rows:
        return
    if len(classes) < 2:
        what = (
            "is null for every node: label some nodes to learn from"
            if not classes
            else f"holds a single class, {_quoted(classes[0][0])}: label nodes of at "
            "least two classes"
        )
        yield Finding("label-none", "refusal", "nodes", f"{seen.where}{because} {what}")
        return
    few = [value for value, rows in classes if rows < FEWEST_LABELS]
    known = len(few) <= len(classes) / 2 or len(classes) <= MANY_CLASSES
    if few and known:
        missing = [value for value, _ in seen.missing]
        yield Finding(
            "label-few",
            "refusal",
            "nodes",
            f"class {_quoted(few[0])} of {seen.where} has 1 labelled node{because} and "
            f"every class needs {FEWEST_LABELS}: label another one, or set "
            f"{_setting([*missing, *few])} to leave the class out",
        )


def roles(seen: Seen) -> Iterator[Finding]:
    """Roles besides train and calibration, and classes that lack one of them."""
    others = [(str(v), n) for v, n in seen.nodes.facts.get("other_roles") or ()]
    column = f"role column {seen.settings.columns.role!r} of {seen.nodes.path}"
    typos = [(v, n) for v, n in others if v.strip().lower() in ROLES]
    if typos:
        yield Finding(
            "role-case",
            "refusal",
            "nodes",
            f"{column} holds {listed(typos)}: write the roles as "
            f"{' and '.join(map(repr, ROLES))}",
        )
    elif others:
        total = sum(rows for _, rows in others)
        yield Finding(
            "role-other",
            "note",
            "nodes",
            f"{column}: {total:,} nodes have the role {listed(others)} and are taken "
            "as unlabelled",
        )
    counted = seen.nodes.facts.get("by_role") or []
    used = [sum(of[at] for _, *of in counted) for at in range(len(ROLES))]
    classes = [(value, of) for value, *of in counted if sum(of) > of[2]]
    for at, role in enumerate(ROLES) if any(used) else ():
        lacking = [_quoted(value) for value, of in classes if not of[at]]
        if lacking:
            yield Finding(
                "role-class",
                "refusal",
                "nodes",
                f"{column}: no node of class {', '.join(lacking[:SHOWN])} has the role "
                f"{role!r}; give each class both roles, or leave the column out to "
                "cross-fit",
            )


def quantifiers(seen: Seen) -> Iterator[Finding]:
    """A quantifier for two classes, and another number of classes."""
    name, classes = seen.settings.quantifier, [str(v) for v, _ in seen.classes]
    if len(classes) > 1 and not record_of(name).defined_for(len(classes)):
        shown = ", ".join(classes[:MANY_CLASSES])
        yield Finding(
            "quantifier",
            "refusal",
            "nodes",
            f"quantifier={name} is defined for two classes and the labels have "
            f"{len(classes)} ({shown}): set quantifier=auto, or merge classes",
        )


def prior(seen: Seen) -> Iterator[Finding]:
    """Known shares that leave no unlabelled node to a class."""
    shares, total = seen.settings.labels.prior or {}, seen.nodes.rows
    names = [str(value) for value, _ in seen.classes]
    unused = seen.settings.quantifier != "auto" or seen.labelled >= total
    if unused or set(shares) != set(names):
        return
    for name, (_, rows) in zip(names, seen.classes, strict=True):
        if shares[name] * total <= rows:
            yield Finding(
                "label-prior",
                "refusal",
                "nodes",
                f"labels.prior gives class {name!r} {shares[name] * total:,.0f} of "
                f"{total:,} nodes, but {rows:,} have its label, and each class needs "
                "unlabelled nodes, too: correct labels.prior or the labels",
            )


def features(seen: Seen) -> Iterator[Finding]:
    """The id, a name or a copy of the label among the features."""
    facts, named = seen.nodes.facts, seen.settings.columns
    for name in facts.get("copies", ()):
        yield Finding(
            "feature-label",
            "refusal",
            "nodes",
            f"feature column {name!r} of {seen.nodes.path} is a copy of the label (on "
            f"all {seen.labelled:,} labelled nodes each class has one value of its "
            "own): leave it out of columns.features, or set "
            "checks.accept=[feature-label]",
        )
    like_ids = {
        name: "has a different text for each node, so it looks like a name"
        for name in (named.features if isinstance(named.features, list) else ())
        if (found := seen.nodes.column(name)) is not None
        and found.kind == "text"
        and found.distinct in (None, found.rows)
        and found.rows > MANY_CLASSES
    }
    same = facts.get("same_as_id", ())
    like_ids |= dict.fromkeys(same, "equals the node id")
    for name, what in like_ids.items():
        yield Finding(
            "feature-id",
            "refusal",
            "nodes",
            f"feature column {name!r} of {seen.nodes.path} {what}: leave it out of "
            "columns.features, or set checks.accept=[feature-id]",
        )


def column_case(seen: Seen) -> Iterator[Finding]:
    """A column `Weight` where `weight` is expected."""
    optional = {"nodes": ("role",), "edges": ("weight",), "memberships": ("parent",)}
    for what, keys in optional.items():
        table = getattr(seen, what)
        names = table.facts.get("names", ()) if table else ()
        for key in keys:
            named = getattr(seen.settings.columns, key)
            if named in names or named != ColumnSettings.model_fields[key].default:
                continue
            for name in names:
                if name.strip().lower() == named:
                    yield Finding(
                        "column-case",
                        "warning",
                        what,
                        f"{table.path} has a column {name!r} that is not used: set "
                        f"columns.{key}={name} to use it, or "
                        "checks.accept=[column-case] to leave it out",
                    )


def weights(seen: Seen) -> Iterator[Finding]:
    """Weights that are all zero."""
    column = seen.edges.column(seen.settings.columns.weight) if seen.edges else None
    if seen.edges and column and column.rows and column.high == 0:
        yield Finding(
            "weight-zero",
            "refusal",
            "edges",
            f"all {column.rows:,} weights in column {column.name!r} of "
            f"{seen.edges.path} are 0, so no edge has an effect: correct them, or set "
            "columns.weight=null to use edges without weights",
        )


def ids(seen: Seen) -> Iterator[Finding]:
    """Ids of another type, with spaces, or of nodes that are not there."""
    for what in ("edges", "memberships"):
        table: TableProfile | None = getattr(seen, what)
        if table is None:
            continue
        facts, unknown = table.facts, table.facts.get("unknown")
        if facts.get("mismatch"):
            code, text = _mismatch(facts)
            yield Finding(code, "refusal", what, text)
            continue
        count, example = facts.get("spaces") or (0, "")
        if count:
            yield Finding(
                "id-spaces",
                "warning",
                what,
                f"{count:,} ids of {table.path} match a node id only without the "
                f"spaces around them ({example}): remove the spaces",
            )
        if unknown:
            yield from _unmatched(seen, what, table)


def _mismatch(facts: dict[str, Any]) -> tuple[str, str]:
    """Code and sentence for ids of another type than the nodes'."""
    at = facts["mismatch"]
    where = f"column {at['column']!r} of {at['file']}"
    if facts.get("zeros"):
        return "id-zeros", (
            f"node ids have leading zeros ({facts['zeros']}) and {where} holds "
            "integers, which have lost them: write that column as text"
        )
    nodes = "integers" if facts["id_type"] == "int64" else "text"
    if "row" in at:
        return "ids-types", (
            f"column {at['column']!r} holds {at['value']} in {at['row']} and the node "
            "ids are integers: correct the row, or write both as text"
        )
    return "ids-types", (
        f"{where} holds {at['type']} and the node ids are {nodes}: write both as the "
        "same type"
    )


def _unmatched(seen: Seen, what: str, table: TableProfile) -> Iterator[Finding]:
    """Rows of nodes that are not in the node table."""
    matched = table.facts["matched"]
    nodes = "both nodes" if what == "edges" else "a node"
    column, value, row = table.facts["unknown"]
    spaces = table.facts["spaces"][0]
    share = matched / table.rows
    counted = (
        f"{matched:,} of {table.rows:,} {what} ({100 * share:.1f} %) have {nodes} in "
        "the node table"
    )
    if seen.settings.input.unknown_nodes == "error":
        yield Finding(
            "unknown-nodes",
            "refusal",
            what,
            f"{table.rows - matched:,} of {table.rows:,} {what} name a node that is "
            f"not in the node table (the first: {value} in column {column!r}, {row}): "
            "add the nodes, or set input.unknown_nodes=drop"
            + (f"; {spaces:,} match without spaces around them" if spaces else ""),
        )
    elif share < MATCHED:
        yield Finding(
            "few-matches",
            "refusal",
            what,
            f"only {counted}, so {table.path} looks like the table of another graph: "
            "check it, or set checks.accept=[few-matches]",
        )
    elif share < MOST_MATCHED:
        yield Finding(
            "few-matches",
            "warning",
            what,
            f"{counted}; the others are left out (input.unknown_nodes=drop): check "
            "that the tables belong together",
        )


def shape(seen: Seen) -> Iterator[Finding]:
    """Nodes without an edge, and edges that are all loops."""
    if seen.edges is None or seen.edges.facts.get("mismatch"):
        return
    facts, path = seen.edges.facts, seen.edges.path
    if facts["loops"] and facts["loops"] == facts["matched"]:
        yield Finding(
            "loops",
            "warning",
            "edges",
            f"every edge of {path} joins a node to itself: check columns.src and "
            "columns.dst",
        )
    share = facts["isolated"] / max(1, facts["nodes"])
    if share > ISOLATED:
        yield Finding(
            "isolated",
            "warning",
            "edges",
            f"{facts['isolated']:,} of {facts['nodes']:,} nodes ({100 * share:.0f} %) "
            "have no edge, so their estimates use features alone: check that "
            f"{path} is complete",
        )


def communities(seen: Seen) -> Iterator[Finding]:
    """Communities that differ by case or spaces alone."""
    given = seen.memberships
    named = seen.settings.columns.community
    if given is None:
        given, named = seen.nodes, seen.settings.communities.removeprefix("column:")
    column = given.column(named)
    if column and column.rows == column.nulls and seen.memberships is None:
        yield Finding(
            "community-none",
            "refusal",
            "nodes",
            f"column {named!r} of {given.path} has no value: name another column in "
            "communities=column:NAME",
        )
    groups = _variants(column.levels) if column else []
    if groups:
        pair = " and ".join(repr(value) for value, _ in groups[0][:2])
        more = f" (and {len(groups) - 1:,} more groups)" if len(groups) > 1 else ""
        yield Finding(
            "community-case",
            "warning",
            given.what.partition(" ")[0],
            f"communities {pair}{more} of {given.path} differ by case or spaces alone "
            "and are kept apart: write them alike if they are one",
        )


CHECKS: tuple[Check, ...] = (
    null_words,
    minus_one,
    label_case,
    label_mixed,
    label_ids,
    label_counts,
    roles,
    quantifiers,
    prior,
    features,
    column_case,
    ids,
    weights,
    shape,
    communities,
)
