"""Complementary suppression for combinations of any number of communities.

Whoever knows published results can compute every sum ``c_1 S_1 + c_2 S_2 + ...`` over
the members of communities and of the complete graph. It reveals a few nodes if all but
fewer than m of them cancel out. Nodes in the same sets form an atom, and cancel out if
the coefficients of their sets add up to 0: a linear equation for each atom. Atoms of m
nodes or more must cancel out. Of those that are smaller, each does so or is among the
few, which a search tries. It is exact (modulo a prime) and finds every combination.

A community with m members in no other set has the coefficient 0. Most of them drop out
like that, and the equations of the others fall apart into small groups.

References
----------
L. H. Cox, "Suppression methodology and statistical disclosure control", Journal of the
American Statistical Association 75(370), 1980 (what linear relations reveal).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from xnq_dist.core.arrays import Bools, Ints
from xnq_dist.quantify.interface import Communities

__all__ = ["MEMBERSHIPS", "more_suppressed"]

PRIME = 2**61 - 1
MEMBERSHIPS = 1 << 22
"""Memberships up to which combinations are checked."""
PAIRS, TERMS, STEPS = 1 << 20, 1 << 21, 1 << 19
"""Pairs of a set and an atom, terms of equations, and terms that the searches look at,
up to which combinations are checked."""

Form = dict[int, int]
"""A sum of unknowns: the coefficient of each, modulo the prime."""


class _TooManyError(Exception):
    """More communities overlap in more ways than can be checked."""


def more_suppressed(
    sets: Communities, n_nodes: int, hidden: Bools, secret: Bools, min_size: int
) -> tuple[Bools, bool]:
    """Mark further communities, so that no combination reveals few nodes.

    Parameters
    ----------
    sets
        Members of all communities whose estimates are about them.
    n_nodes
        Number of nodes that the estimate for the complete graph is about; the members
        may have larger numbers.
    hidden
        Communities that are suppressed, shape (S,).
    secret
        Those of them with `min_size` members or more that must not be computable
        themselves, even up to a few members, shape (S,).
    min_size
        Number of nodes, m, which a combination may reveal.

    Returns
    -------
    The further communities, shape (S,), and whether all combinations were checked: not
    if too many communities overlap in too many ways.
    """
    sizes = np.diff(sets.offsets)
    # The complete graph's estimate, which is always published, shows the others.
    secret = secret & (n_nodes - sizes >= min_size)
    more, equations = np.zeros_like(hidden), _Equations()
    try:
        atoms, weights = _atoms(sets, n_nodes, ~hidden | secret, min_size)
        large = np.flatnonzero(weights >= min_size).tolist()
        for at in sorted(large, key=lambda at: len(atoms[at])):
            equations.add(equations.reduced(dict.fromkeys(atoms[at], 1)))
        small = np.flatnonzero(weights < min_size).tolist()
        tested = [(atoms[at], int(weights[at])) for at in small]
        used = {k for atom in atoms for k in atom}
        tested += [([k], 0) for k in np.flatnonzero(secret).tolist() if k in used]
        groups = _connected(equations, tested)
    except _TooManyError:
        return more, False
    complete, steps = True, max(STEPS // max(len(groups), 1), 1 << 12)
    for group in groups:
        search = _Search(steps)
        try:
            while (
                found := search.revealing(equations, group, min_size - 1)
            ) is not None:
                used = set(found).union(*(equations.users[v] for v in found))
                shown = [k for k in used if k < len(sizes) and not hidden[k]]
                shown = [k for k in shown if equations.value(k, found)]
                if not shown:
                    break  # a graph of fewer nodes
                k = min(shown, key=lambda k: (sizes[k], k))
                more[k] = True
                equations.add(equations.reduced({k: 1}))
        except _TooManyError:
            complete = False
    return more, complete


def _atoms(
    sets: Communities, n_nodes: int, used: Bools, min_size: int
) -> tuple[list[list[int]], Ints]:
    """Sets that each atom is in, and the number of its nodes; the last is the graph.

    Sets whose coefficient is 0 because of their own members are left out.
    """
    graph = len(used)
    row, node = np.repeat(np.arange(graph), np.diff(sets.offsets)), sets.members
    total = int(node.max(initial=-1)) + 1
    left = np.append(used, True)
    while True:
        kept = left[row]
        row, node = row[kept], node[kept]
        count = np.bincount(node, minlength=total)
        if left[graph]:
            alone = np.zeros(graph + 1, np.int64)
            alone[graph] = n_nodes - np.count_nonzero(count)
        else:
            alone = np.bincount(row[count[node] == 1], minlength=graph + 1)
        if not (left & (alone >= min_size)).any():
            break
        left &= alone < min_size
    random = np.random.Generator(np.random.Philox(0))
    key = np.zeros(total, np.uint64)
    np.add.at(key, node, random.integers(0, 2**64, graph, np.uint64)[row])
    covered = np.flatnonzero(count)
    _, first, weights = np.unique(key[covered], return_index=True, return_counts=True)
    atom = np.full(total, -1)
    atom[covered[first]] = np.arange(len(first))
    at = np.flatnonzero(atom[node] >= 0)
    if len(at) > PAIRS:
        raise _TooManyError
    at = at[np.argsort(atom[node[at]], kind="stable")]
    ends = np.cumsum(np.bincount(atom[node[at]], minlength=len(first)))
    atoms = [part.tolist() for part in np.split(row[at], ends[:-1])] if len(at) else []
    if left[graph]:
        atoms = [[*atom_sets, graph] for atom_sets in atoms]
        outside = n_nodes - len(covered)
        if outside:
            atoms, weights = [*atoms, [graph]], np.append(weights, outside)
    return atoms, weights[: len(atoms)].astype(np.int64)


class _Equations:
    """Unknowns that equations express by free ones."""

    def __init__(self) -> None:
        self._of: dict[int, Form] = {}
        self.users: dict[int, set[int]] = defaultdict(set)
        """Expressed unknowns by the free ones that they depend on."""
        self._left = TERMS

    def reduced(self, form: Form) -> Form:
        """The same sum in free unknowns."""
        result: dict[int, int] = defaultdict(int)
        for v, c in form.items():
            expression = self._of.get(v, {v: 1})
            self._spend(len(expression))
            for w, d in expression.items():
                result[w] += c * d
        return {v: c % PRIME for v, c in result.items() if c % PRIME}

    def add(self, form: Form) -> None:
        """Add the equation that a sum of free unknowns is 0."""
        if not form:
            return
        pivot = min(form, key=lambda v: len(self.users[v]))
        expression = _expression(form, pivot)
        for user in self.users.pop(pivot, set()):
            self._of[user] = _put(self._of[user], pivot, expression)
            self._spend(len(self._of[user]))
            for v in expression:
                self.users[v].add(user)
        self._of[pivot] = expression
        for v in expression:
            self.users[v].add(pivot)

    def value(self, unknown: int, values: Form) -> int:
        """The value of an unknown, from those of free ones, 0 where they have none."""
        form = self._of.get(unknown, {unknown: 1})
        return sum(c * values.get(v, 0) for v, c in form.items()) % PRIME

    def _spend(self, terms: int) -> None:
        self._left -= terms
        if self._left < 0:
            raise _TooManyError


def _put(form: Form, unknown: int, expression: Form) -> Form:
    """The sum with an expression in place of an unknown."""
    factor = form.get(unknown)
    if factor is None:
        return form
    result = {v: c for v, c in form.items() if v != unknown}
    for v, c in expression.items():
        value = (result.pop(v, 0) + factor * c) % PRIME
        if value:
            result[v] = value
    return result


def _expression(form: Form, unknown: int) -> Form:
    """The unknown by the others of a sum that is 0."""
    factor = -pow(form[unknown], -1, PRIME)
    return {v: factor * c % PRIME for v, c in form.items() if v != unknown}


def _connected(
    equations: _Equations, tested: list[tuple[list[int], int]]
) -> list[list[tuple[list[int], int]]]:
    """Groups of atoms that have unknowns in common, without those that cancel out."""
    root: dict[int, int] = {}

    def find(v: int) -> int:
        while root.setdefault(v, v) != v:
            root[v] = v = root[root[v]]
        return v

    forms = [equations.reduced(dict.fromkeys(atom, 1)) for atom, _ in tested]
    for form in forms:
        first, *others = [find(v) for v in form] or [0]
        for v in others:
            root[find(v)] = find(first)
    groups: dict[int, list[tuple[list[int], int]]] = defaultdict(list)
    for form, each in zip(forms, tested, strict=True):
        if form:
            groups[find(next(iter(form)))].append(each)
    return list(groups.values())


class _Search:
    """Search for combinations that leave a few nodes."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def revealing(
        self, equations: _Equations, group: list[tuple[list[int], int]], few: int
    ) -> Form | None:
        """Free unknowns of a combination that reveals few nodes or a secret; or None.

        Parameters
        ----------
        group
            Atoms and their weights; secret sets have the weight 0.
        """
        forms = [
            (equations.reduced(dict.fromkeys(atom, 1)), weight)
            for atom, weight in group
        ]
        secrets = [form for form, weight in forms if not weight]
        forms = [(form, weight) for form, weight in forms if weight]
        for at in range(-1, len(secrets)):
            # A combination reveals one secret if the others have the coefficient 0.
            others = [form for other, form in enumerate(secrets) if other != at]
            inside = secrets[at : at + 1] if at >= 0 else []
            if (found := self.find(forms, inside, others, few)) is not None:
                return found
        return None

    def find(
        self,
        forms: list[tuple[Form, int]],
        inside: list[Form],
        zero: list[Form],
        few: int,
    ) -> Form | None:
        """Values of unknowns that are not all without effect; None: there are none.

        `zero` are 0. Of the `forms`, those that are not 0 weigh at most `few`. One of
        them or `inside` is not 0.
        """
        solved: list[tuple[int, Form]] = []
        while True:
            while zero:
                form, *zero = zero
                if form:
                    pivot = next(iter(form))
                    put = pivot, _expression(form, pivot)
                    solved.append(put)
                    forms = [(_put(form, *put), weight) for form, weight in forms]
                    inside = [_put(form, *put) for form in inside]
                    zero = [_put(form, *put) for form in zero]
            forms = _merged(forms)
            self._left -= sum(len(form) for form, _ in forms) + 1
            if self._left < 0:
                raise _TooManyError
            if sum(weight for _, weight in forms) <= few:
                some = [form for form in (*inside, *(f for f, _ in forms)) if form]
                return _completed({next(iter(some[0])): 1}, solved) if some else None
            heaviest = max(range(len(forms)), key=lambda at: forms[at][1])
            form, weight = forms[heaviest]
            forms = forms[:heaviest] + forms[heaviest + 1 :]
            if weight <= few:
                found = self.find(forms, [*inside, form], [], few - weight)
                if found is not None:
                    return _completed(found, solved)
            zero = [form]


def _merged(forms: list[tuple[Form, int]]) -> list[tuple[Form, int]]:
    """Sums that are not 0; those that are multiples of each other become one."""
    weights: dict[tuple[tuple[int, int], ...], int] = defaultdict(int)
    for form, weight in forms:
        if form:
            factor = pow(form[min(form)], -1, PRIME)
            key = tuple((v, factor * form[v] % PRIME) for v in sorted(form))
            weights[key] += weight
    return [(dict(key), weight) for key, weight in weights.items()]


def _completed(values: Form, solved: list[tuple[int, Form]]) -> Form:
    """The values with those of unknowns that were solved before."""
    for unknown, expression in reversed(solved):
        value = sum(c * values.get(v, 0) for v, c in expression.items()) % PRIME
        if value:
            values[unknown] = value
    return values
