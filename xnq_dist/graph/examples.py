"""Two generated data sets with known truth: votes by county, infections by district.

The third one, bots among followers, is `generate.demo_network`. Columns are as people
have them: amounts, dates, text and gaps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xnq_dist.core.arrays import Bools, Floats, Ints
from xnq_dist.core.random_bits import stream
from xnq_dist.core.store import Folder

__all__ = ["infections", "votes"]

_VOTES, _PEOPLE, _CONTACTS, _SPREAD = range(40, 44)
"""Purposes of random streams, apart from those of `planted`."""

PARTIES = ("Union", "Labour", "Greens", "Liberals")
_PULL = (
    (0.5, 0.3, 0.0, -0.2),
    (0.5, -0.9, 0.1, 0.9),
    (0.8, 0.2, -1.0, -0.3),
    (-0.6, -0.4, 1.0, 0.5),
)
"""What draws voters to each party: base, income, age and schooling."""
SCHOOLS = ("no school", "primary", "secondary", "vocational", "college", "university")
WORK = ("care", "school", "shop", "office", "factory", "farm", "home", "retired")
DISTRICTS = 32


def votes(out: str | Path, seed: int = 0) -> dict[str, str]:
    """Voters in counties and states, as CSV; an exit poll in every third county.

    A county has its own means of income, age and schooling, which decide a vote with
    chance and a smaller effect of the county. Voters talk to voters of their county and
    party more than to others. The poll asks 15 % of a polled county's voters at random.

    Returns
    -------
    dict
        Paths of ``nodes``, ``edges``, ``memberships``, ``truth`` and ``meta``.
    """
    n, counties, rng = 6000, 40, stream(seed, _VOTES)
    sizes = rng.dirichlet(np.full(counties, 4.0))
    county = np.sort(rng.choice(counties, n, p=sizes))
    x = rng.standard_normal((n, 3)) + 0.6 * rng.standard_normal((counties, 3))[county]
    wish = np.array(_PULL[0]) + x @ np.array(_PULL[1:]) + rng.gumbel(size=(n, 4))
    vote = (wish + 0.3 * rng.standard_normal((counties, 4))[county]).argmax(axis=1)
    party = np.array(PARTIES)[vote]
    polled = (county % 3 == 0) & (rng.random(n) < 0.15)
    # Twelve people met, most of them in the county; some become contacts.
    src, near = np.repeat(np.arange(n), 12), rng.random(12 * n)
    bounds = np.searchsorted(county, np.arange(counties + 1))
    first, size = bounds[county[src]], np.diff(bounds)[county[src]]
    met = first + (rng.random(12 * n) * size).astype(np.int64)
    met = np.where(near < 0.75, met, rng.integers(0, n, 12 * n))
    talks = rng.random(12 * n) < np.where(vote[src] == vote[met], 0.6, 0.2)
    pairs = np.sort(np.stack([src, met])[:, talks & (src != met)], axis=0)
    edges = np.unique(pairs, axis=1)
    ids = _ids("voter", n)
    names = [f"county {k:02d}" for k in range(counties)]
    school = np.searchsorted(np.arange(-2, 3), x[:, 2])
    tables = {
        "nodes": {
            "node_id": ids,
            "income": _gaps(np.round(np.exp(10.3 + 0.6 * x[:, 0]), -2), rng, 0.06),
            "age": np.clip(np.round(47 + 13 * x[:, 1]), 18, 99).astype(np.int64),
            "school": _gaps(np.array(SCHOOLS)[school], rng, 0.04),
            "label": pa.array(party, mask=~polled),
        },
        "edges": {"src": ids.take(edges[0]), "dst": ids.take(edges[1])},
        "memberships": {
            "community": np.array(names)[county],
            "node_id": ids,
            "parent": np.array([f"state {k}" for k in "ABCDEFGH"])[county % 8],
        },
        "truth": {"node_id": ids, "label": party},
    }
    kinds = {c: "not polled" if k % 3 else "polled" for k, c in enumerate(names)}
    return _write(out, tables, kinds, "csv")


def infections(out: str | Path, seed: int = 0) -> dict[str, str]:
    """People in households, districts and commuting areas, as Parquet.

    An infection spreads along contacts from three districts until more than 5 % have
    it. Of the infected 35 % are tested, of the others 4 %; other states are unknown.

    Returns
    -------
    dict
        Paths as for `votes`.
    """
    n, rng = 8000, stream(seed, _PEOPLE)
    house = np.repeat(np.arange(n), rng.choice(np.arange(1, 6), n, p=_HOUSES))[:n]
    district = house * DISTRICTS // (house[-1] + 1)
    age = np.clip(rng.gamma(4, 11, n), 0, 99).astype(np.int64)
    work = np.where(age > 66, 7, rng.integers(0, 7, n))
    vaccinated = rng.random(n) < 0.25 + 0.006 * age
    day = rng.integers(18_600, 18_900, n)
    src, dst, weight = _contacts(house, district, work, stream(seed, _CONTACTS))
    infected = _spread((src, dst, weight), district, vaccinated, stream(seed, _SPREAD))
    fever = rng.random(n) < np.where(infected, 0.5, 0.06)
    tested = rng.random(n) < np.where(infected, 0.35, 0.04)
    state = np.where(infected, "infected", "healthy")
    ids = _ids("person", n)
    # An area has two districts and the first one of the next area.
    near = np.concatenate([district // 2, district // 2 - 1]) % (DISTRICTS // 2)
    inside = np.concatenate([np.ones(n, bool), district % 2 == 0])
    areas = np.array([f"area {k:02d}" for k in range(DISTRICTS // 2)])
    places = np.array([f"district {k:02d}" for k in range(DISTRICTS)])
    both = np.concatenate([np.arange(n), np.tile(np.arange(n), 2)[inside]])
    tables = {
        "nodes": {
            "node_id": ids,
            "age": _gaps(age, rng, 0.05),
            "work": np.array(WORK)[work],
            "vaccinated": pa.array(day, pa.int32(), mask=~vaccinated).cast(pa.date32()),
            "fever": _gaps(fever, rng, 0.15),
            "label": pa.array(state, mask=~tested),
        },
        "edges": {"src": ids.take(src), "dst": ids.take(dst), "weight": weight},
        "memberships": {
            "community": np.concatenate([places[district], areas[near[inside]]]),
            "node_id": ids.take(both),
        },
        "truth": {"node_id": ids, "label": state},
    }
    kinds = dict.fromkeys(places.tolist(), "district") | dict.fromkeys(
        areas.tolist(), "commuting area"
    )
    return _write(out, tables, kinds, "parquet")


_HOUSES = (0.35, 0.3, 0.15, 0.13, 0.07)
"""Shares of households of one to five people."""


def _contacts(
    house: Ints, district: Ints, work: Ints, rng: np.random.Generator
) -> tuple[Ints, Ints, Floats]:
    """Pairs of people, each once, and hours a day: at home, and at work or leisure."""
    n = len(house)
    pairs = []
    for gap in range(1, len(_HOUSES)):
        first = np.flatnonzero(house[:-gap] == house[gap:])
        pairs.append(np.stack([first, first + gap]))
    hours = [np.full(pair.shape[1], 8.0) for pair in pairs]
    person = np.repeat(np.arange(n), np.where(work < 3, 5, np.where(work < 6, 3, 2)))
    m = len(person)
    where, side = rng.random(m), rng.choice([-1, 1], m)
    place = district[person] + np.where(where < 0.7, 0, side)
    place = np.where(where > 0.95, rng.integers(0, DISTRICTS, m), place)
    bounds = np.searchsorted(district, np.arange(DISTRICTS + 1))
    first, size = bounds[place % DISTRICTS], np.diff(bounds)[place % DISTRICTS]
    pairs.append(np.stack([person, first + (rng.random(m) * size).astype(np.int64)]))
    hours.append(rng.integers(1, 5, m) / 2)
    ends = np.sort(np.concatenate(pairs, 1), axis=0)
    ends, at = np.unique(ends, axis=1, return_index=True)
    apart = ends[0] != ends[1]
    return ends[0][apart], ends[1][apart], np.concatenate(hours)[at][apart]


def _spread(
    contacts: tuple[Ints, Ints, Floats],
    district: Ints,
    vaccinated: Bools,
    rng: np.random.Generator,
) -> Bools:
    """Who is infected, after rounds along contacts from three districts."""
    a, b, hours = contacts
    giver, taker = np.concatenate([a, b]), np.concatenate([b, a])
    risk = 1 - np.exp(-0.06 * np.tile(hours, 2) * np.where(vaccinated[taker], 0.4, 1))
    first = np.isin(district, (5, 13, 26))
    infected: Bools = first & (rng.random(len(district)) < 0.02)
    while infected.mean() < 0.05:
        meets = infected[giver] & (rng.random(len(giver)) < risk)
        infected[taker[meets]] = True
    return infected


def _ids(name: str, n: int) -> pa.Array:
    return pa.array([f"{name}-{at:04d}" for at in range(n)])


def _gaps(values: NDArray[Any], rng: np.random.Generator, share: float) -> pa.Array:
    """The values, a random share of them null."""
    return pa.array(values, mask=rng.random(len(values)) < share)


def _write(
    out: str | Path,
    tables: Mapping[str, Mapping[str, Any]],
    kinds: dict[str, str],
    form: str,
) -> dict[str, str]:
    folder = Folder.of(out)
    folder.create()
    paths = {}
    for name, columns in tables.items():
        ending = "parquet" if name == "truth" else form
        write = pacsv.write_csv if ending == "csv" else pq.write_table
        file = f"{name}.{ending}"
        with folder.open_output(file) as sink:
            write(pa.table(dict(columns)), pa.PythonFile(sink, "w"))
        paths[name] = folder.uri_of(file)
    folder.write_bytes("meta.json", json.dumps({"kinds": kinds}, indent=1).encode())
    return paths | {"meta": folder.uri_of("meta.json")}
