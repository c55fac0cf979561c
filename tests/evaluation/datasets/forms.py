"""Small graphs in the public file formats, and a web server for files."""

from __future__ import annotations

import json
import struct
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from scipy.io import savemat
from scipy.sparse import csr_matrix


def python2_pickle(value: object) -> bytes:
    """A pickle in the form of Python 2, protocol 2: byte strings and old names."""
    return b"\x80\x02" + _encoded(value) + b"."


def _encoded(value: object) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, (int, np.integer)):
        return b"J" + struct.pack("<i", int(value))
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, str):
        return b"U" + struct.pack("<B", len(value)) + value.encode("ascii")
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_encoded, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_encoded, value)) + b"e"
    if isinstance(value, dict):
        items = b"".join(_encoded(k) + _encoded(v) for k, v in value.items())
        start = b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R"
        return start + b"(" + items + b"u"
    if isinstance(value, np.ndarray):
        made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        made += _encoded((0,)) + _encoded("b") + b"\x87R"
        kind = b"cnumpy\ndtype\n" + _encoded(value.dtype.str[1:])
        kind += _encoded(0) + _encoded(1) + b"\x87R("
        for part in (3, "<", None, None, None, -1, -1, 0):
            kind += _encoded(part)
        kind += b"tb"
        state = b"(" + _encoded(1) + _encoded(value.shape) + kind
        return made + state + _encoded(False) + _encoded(value.tobytes()) + b"tb"
    if isinstance(value, csr_matrix):
        parts = {
            "_shape": value.shape,
            "maxprint": 50,
            "indices": value.indices,
            "indptr": value.indptr,
            "data": value.data,
        }
        items = b"".join(_encoded(k) + _encoded(v) for k, v in parts.items())
        return b"cscipy.sparse.csr\ncsr_matrix\n)\x81}(" + items + b"ub"
    raise AssertionError(f"no form for {value!r}")


def write_planetoid(folder: Path, features, labels, neighbours, test, prefix) -> None:
    """Planetoid files; `test` is the order of the last nodes' rows."""
    first = len(features) - len(test)
    hot = np.eye(labels.max() + 1, dtype=np.int32)[labels]
    parts = {
        "allx": csr_matrix(features[:first].astype(np.float32)),
        "tx": csr_matrix(features[test].astype(np.float32)),
        "ally": hot[:first],
        "ty": hot[test],
        "graph": neighbours,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in parts.items():
        (folder / f"{prefix}.{part}").write_bytes(python2_pickle(value))
    text = "".join(f"{node}\n" for node in test)
    (folder / f"{prefix}.test.index").write_text(text)


def write_heterophilous(path: Path, features, labels, edges) -> None:
    """An archive of Platonov et al., including masks, which are not read."""
    masks = np.zeros((10, len(labels)), np.bool_)
    np.savez_compressed(
        path,
        node_features=features,
        node_labels=labels,
        edges=edges,
        train_masks=masks,
        val_masks=masks,
        test_masks=masks,
    )


def write_linkx(path: Path, features, labels, edges) -> None:
    """A MATLAB file of Lim et al.: edges of shape (2, M), labels as a row."""
    savemat(path, {"node_feat": features, "label": labels, "edge_index": edges.T})


def write_graphsaint(folder: Path, adjacency: csr_matrix, features, labels) -> None:
    """A folder in the GraphSAINT format."""
    from scipy.sparse import save_npz

    folder.mkdir(parents=True, exist_ok=True)
    save_npz(folder / "adj_full.npz", adjacency)
    np.save(folder / "feats.npy", features)
    classes = {str(node): int(label) for node, label in enumerate(labels)}
    (folder / "class_map.json").write_text(json.dumps(classes))


def write_musae(folder: Path, language: str, mature, edges, games) -> None:
    """The three files of a language; rows of the target file are shuffled."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(
        f"{900 + node},10,{bool(mature[node])},7,False,{node}\n"
        for node in reversed(range(len(mature)))
    )
    head = "id,days,mature,views,partner,new_id\n"
    (folder / f"musae_{language}_target.csv").write_text(head + rows)
    rows = "".join(f"{a},{b}\n" for a, b in edges)
    (folder / f"musae_{language}_edges.csv").write_text("from,to\n" + rows)
    lists = {str(node): list(ids) for node, ids in enumerate(games)}
    (folder / f"musae_{language}_features.json").write_text(json.dumps(lists))


def write_zip(path: Path, files: dict[str, Path]) -> None:
    """An archive of files under given names."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, file in files.items():
            archive.write(file, name)


@contextmanager
def served(files: dict[str, bytes], short: int = 0) -> Iterator[str]:
    """A web server with these files, which omits the last `short` bytes of each."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files.get(self.path.lstrip("/"))
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) - short])

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
