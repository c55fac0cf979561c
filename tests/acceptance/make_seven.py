"""Seven graphs in the forms that people have, from the data folder.

    python tests/acceptance/make_seven.py OUT

XNQ_DATA_DIR names the data folder; OUT must lie outside the project. Each graph has a
folder with its tables and ``truth.parquet`` (node_id, label), which no run may read.
Somebody who did not write the readers then runs each graph with the README and the
documentation alone, and records commands and stumbles in README.md next to this file.
"""

from __future__ import annotations

import gzip
import os
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(os.environ.get("XNQ_DATA_DIR", ""))
SCHOOLS = ("Grundschule", "Hauptschule", "Realschule", "Gymnasium", "Universität")
TOWNS = [f"{name}{end}" for name in ("Köln", "Ulm", "Bonn") for end in ("", " Süd")]


def load(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """Node ids, labels (-1: none), features or None, and edges, shape (M, 2)."""
    nodes = pq.read_table(DATA / name / "nodes.parquet")
    edges = pq.read_table(DATA / name / "edges.parquet")
    features = None
    if "features" in nodes.column_names:
        flat = nodes["features"].combine_chunks().flatten().to_numpy()
        features = flat.reshape(len(nodes), -1)
    labels = nodes["label"].fill_null(-1).to_numpy()
    ends = [edges[end].to_numpy() for end in ("src", "dst")]
    return nodes["node_id"].to_numpy(), labels, features, np.stack(ends, axis=1)


def save(folder: Path, **tables: dict[str, Any]) -> None:
    """Write tables as Parquet."""
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def keep(labels: np.ndarray, share: float, rng: np.random.Generator) -> pa.Array:
    """The labels of a random share of the nodes; null elsewhere."""
    hidden = (rng.random(len(labels)) >= share) | (labels < 0)
    return pa.array(labels, mask=hidden)


def german(folder: Path, rng: np.random.Generator) -> None:
    """Tolokers: semicolons, decimal commas, gzip, gaps, ``NA`` labels."""
    ids, labels, x, edges = load("tolokers")
    assert x is not None
    known = keep(labels, 0.1, rng).to_pylist()
    start = date(2015, 1, 1)
    rows = ["Nummer;Einkommen;Quote;Schule;Ort;Sprache;seit;gesperrt"]
    for at, node in enumerate(ids.tolist()):
        cells = [
            f"{20_000 * np.exp(x[at, 0]):.2f}".replace(".", ","),
            f"{x[at, 1]:.4f}".replace(".", ","),
            SCHOOLS[int(4 * min(x[at, 2], 1))],
            TOWNS[int(5 * min(x[at, 3], 1))],
            "deutsch" if x[at, 7] else "übrige",
            str(start + timedelta(int(2000 * min(x[at, 0], 1)))),
        ]
        gaps = (rng.random(6) < 0.05).tolist()
        cells = ["" if gap else c for c, gap in zip(cells, gaps, strict=True)]
        label = "NA" if known[at] is None else ("nein", "ja")[known[at]]
        rows.append(";".join([str(node), *cells, label]))
    with gzip.open(folder / "konten.csv.gz", "wb") as file:
        file.write("\r\n".join(rows).encode())
    with gzip.open(folder / "kanten.csv.gz", "wb") as file:
        lines = ["von;nach", *(f"{a};{b}" for a, b in edges.tolist())]
        file.write("\r\n".join(lines).encode())
    truth = np.array(["nein", "ja"])[labels]
    save(folder, truth={"node_id": ids, "label": truth})


def graphml(folder: Path, rng: np.random.Generator) -> None:
    """Cora as GraphML: a topic (10 % of the nodes) and 20 word frequencies."""
    ids, labels, x, edges = load("cora")
    assert x is not None
    words = x @ rng.standard_normal((x.shape[1], 20)) / 5
    known = keep(labels, 0.1, rng).to_pylist()
    keys = [("topic", "string"), *((f"w{k:02d}", "double") for k in range(20))]
    lines = ['<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
    for name, kind in keys:
        at = f'id="{name}" for="node" attr.name="{name}" attr.type="{kind}"'
        lines.append(f"<key {at}/>")
    lines.append('<graph edgedefault="undirected">')
    for at, node in enumerate(ids.tolist()):
        cells = [
            f'<data key="w{k:02d}">{v:.5f}</data>' for k, v in enumerate(words[at])
        ]
        if known[at] is not None:
            cells.append(f'<data key="topic">topic {known[at]}</data>')
        lines.append(f"<node id={quoteattr(f'n{node}')}>{''.join(cells)}</node>")
    once = edges[edges[:, 0] < edges[:, 1]].tolist()
    lines += [f'<edge source="n{a}" target="n{b}"/>' for a, b in once]
    text = "\n".join([*lines, "</graph></graphml>"])
    (folder / "cora.graphml").write_text(text, encoding="utf-8")
    truth = {"node_id": [f"n{v}" for v in ids], "label": [f"topic {c}" for c in labels]}
    save(folder, truth=truth)


def directed(folder: Path, rng: np.random.Generator) -> None:
    """Squirrel: directed, weighted, without features, tab-separated."""
    ids, labels, _, edges = load("squirrel-filtered")
    known = keep(labels, 0.2, rng).to_pylist()
    pairs = zip(ids.tolist(), known, strict=True)
    rows = [f"{v}\t{'' if c is None else c}" for v, c in pairs]
    (folder / "nodes.tsv").write_text("\n".join(["node_id\tlabel", *rows]) + "\n")
    one_way = edges[rng.random(len(edges)) < 0.6]
    weights = np.round(rng.lognormal(0, 1, len(one_way)), 3)
    weighted = zip(one_way.tolist(), weights.tolist(), strict=True)
    rows = [f"{a}\t{b}\t{w}" for (a, b), w in weighted]
    (folder / "edges.tsv").write_text("\n".join(["src\tdst\tweight", *rows]) + "\n")
    save(folder, truth={"node_id": ids, "label": labels})


def few(folder: Path, rng: np.random.Generator) -> None:
    """Minesweeper: thirty labels."""
    ids, labels, x, edges = load("minesweeper")
    assert x is not None
    hidden = np.ones(len(ids), bool)
    hidden[rng.choice(len(ids), 30, replace=False)] = False
    columns = {f"x{k}": x[:, k] for k in range(x.shape[1])}
    nodes = {"node_id": ids, **columns, "label": pa.array(labels, mask=hidden)}
    blocks = pa.array([f"row {v // 500}" for v in range(len(ids))])
    save(
        folder,
        nodes=nodes,
        edges={"src": edges[:, 0], "dst": edges[:, 1]},
        memberships={"community": blocks, "node_id": ids},
        truth={"node_id": ids, "label": labels},
    )


def flickr(folder: Path, rng: np.random.Generator, egos: int) -> None:
    """Flickr: five classes, one of them 1 %; `egos` communities of neighbours."""
    ids, labels, _, edges = load("flickr")
    merged = np.array([0, 1, 1, 2, 3, 4, 2])[labels]
    rare = (merged == 4) & (rng.random(len(ids)) > 900 / max(1, (merged == 4).sum()))
    merged[rare] = 2
    names = np.array(["animals", "people", "places", "plants", "fog"])[merged]
    hidden = rng.random(len(ids)) >= 0.1
    tables: dict[str, dict[str, Any]] = {
        "nodes": {"node_id": ids, "label": pa.array(names, mask=hidden)},
        "edges": {"src": edges[:, 0], "dst": edges[:, 1]},
        "truth": {"node_id": ids, "label": names},
    }
    if egos:
        chosen = rng.choice(np.unique(edges[:, 0]), egos, replace=False)
        inside = np.isin(edges[:, 0], chosen)
        named = pa.array([f"user {v}" for v in edges[inside, 0].tolist()])
        tables["memberships"] = {"community": named, "node_id": edges[inside, 1]}
    save(folder, **tables)


def odd_sizes(folder: Path, rng: np.random.Generator) -> None:
    """Facebook: communities of one member, of none, of a few and of all."""
    ids, labels, x, edges = load("facebook100-johnshopkins55")
    assert x is not None
    names, members = ["everybody"] * len(ids), ids.tolist()
    for at, size in enumerate([1] * 20 + [2, 5, 9, 10, 50, 200, 1000]):
        names += [f"club {at} of {size}"] * size
        members += rng.choice(ids, size, replace=False).tolist()
    flat = pa.array(x.astype(np.float32).ravel())
    features = pa.FixedSizeListArray.from_arrays(flat, x.shape[1])
    save(
        folder,
        nodes={"node_id": ids, "features": features, "label": keep(labels, 0.1, rng)},
        edges={"src": edges[:, 0], "dst": edges[:, 1]},
        memberships={"community": names, "node_id": members},
        truth={"node_id": ids, "label": pa.array(labels, mask=labels < 0)},
    )


GRAPHS = {
    "1-tolokers-semicolons": german,
    "2-cora-graphml": graphml,
    "3-squirrel-directed-weighted": directed,
    "4-minesweeper-30-labels": few,
    "5-flickr-rare-class": lambda folder, rng: flickr(folder, rng, 0),
    "6-facebook-odd-sizes": odd_sizes,
    "7-flickr-40000-communities": lambda folder, rng: flickr(folder, rng, 40_000),
}


def main(out: Path) -> None:
    """Write all seven graphs."""
    project = Path(__file__).resolve().parents[2]
    if not (DATA / "cora").is_dir():
        sys.exit("XNQ_DATA_DIR must name the data folder (see its README.md)")
    if out.resolve().is_relative_to(project):
        sys.exit(f"{out} lies in the project: name a folder outside {project}")
    for number, (name, make) in enumerate(GRAPHS.items()):
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, np.random.default_rng(number))
        sizes = {
            f.name: f"{f.stat().st_size:,} bytes" for f in sorted(folder.iterdir())
        }
        sys.stdout.write(f"{name}: {sizes}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
