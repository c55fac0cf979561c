"""Leave one family of graphs out: a constant chosen on the others, judged on it.

Candidates are estimators that differ in a constant. For every family the candidate of
least error on the *other* families is chosen, and only its figures on the family left
out count. To compare settings instead, give the rows of each evaluation a name of its
own with `as_candidate` and concatenate them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.errors import InputError
from xnq_dist.evaluation.cells import CELL, means, real, sized

__all__ = ["Judged", "as_candidate", "judged_rows", "leave_one_family_out"]


@dataclass(frozen=True)
class Judged:
    """One family, and what was chosen without it."""

    graph_family: str
    chosen_on: tuple[str, ...]
    """The other families."""
    chosen: str
    error: float
    """Mean absolute error of the chosen candidate on the family left out."""
    least: float
    """That of its best candidate, chosen in hindsight."""


def as_candidate(table: pa.Table, estimator: str, name: str) -> pa.Table:
    """The rows of one estimator under another name.

    Parameters
    ----------
    table
        Schema ``community_results``, of an evaluation with one setting.
    estimator
        Whose rows.
    name
        What to call it, such as ``auto, strength 20``.
    """
    some = table.filter(pc.equal(table["estimator"], estimator))
    place = some.schema.get_field_index("estimator")
    return some.set_column(place, "estimator", pa.array([name] * some.num_rows))


def leave_one_family_out(table: pa.Table, candidates: Sequence[str]) -> list[Judged]:
    """What is chosen without each family of graphs.

    Parameters
    ----------
    table
        Schema ``community_results``.
    candidates
        Values of ``estimator``; of equal ones the earlier is chosen.

    Returns
    -------
    list of Judged
        One a family; empty with fewer than two families. A cell counts as much as any
        other of its family, and a family as much as any other.

    Raises
    ------
    InputError
        When a candidate lacks a cell that another has: their errors are then means
        of different things.
    """
    some = pc.is_in(table["estimator"], pa.array(list(candidates)))
    cells: dict[str, dict[str, dict[tuple[object, ...], float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in means(sized(real(table.filter(some))), (*CELL, "estimator")):
        key = tuple(row[name] for name in CELL)
        cells[row["graph_family"]][row["estimator"]][key] = row["ae"]
    errors: dict[str, list[float]] = {}
    for family, by_candidate in cells.items():
        if len({frozenset(by_candidate[name]) for name in candidates}) != 1:
            raise InputError(
                f"{family}: the candidates {', '.join(candidates)} were not evaluated "
                "on the same cells: evaluate all of them with equal --communities, "
                "--designs and --label-shares"
            )
        errors[family] = [
            float(np.mean(list(by_candidate[name].values()))) for name in candidates
        ]
    found = []
    for family, own in errors.items():
        others = [name for name in errors if name != family]
        if others:
            best = int(np.argmin(np.mean([errors[name] for name in others], axis=0)))
            found.append(
                Judged(family, tuple(others), candidates[best], own[best], min(own))
            )
    return found


def judged_rows(table: pa.Table, judged: Sequence[Judged], name: str) -> pa.Table:
    """Rows of every family under the choice made without it, as one estimator.

    Parameters
    ----------
    table
        Schema ``community_results``.
    judged
        Of `leave_one_family_out`.
    name
        What the estimator is called.
    """
    parts = []
    for one in judged:
        own = table.filter(pc.equal(table["graph_family"], one.graph_family))
        parts.append(as_candidate(own, one.chosen, name))
    return pa.concat_tables(parts)
