"""What a file that `run` does not read looks like, by its first bytes."""

from __future__ import annotations

import re

__all__ = ["looks_like"]

_LOAD = (
    ", which run does not read: load it in Python and pass the graph to "
    "estimate_prevalence (docs/how-to/other-formats.md)"
)
_SAVE = ": save the table as CSV or Parquet"

# Longest first where one signature begins another.
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"PAR1", "looks like Parquet: rename it to end in .parquet"),
    (b"PARE", "looks like encrypted Parquet: write it without encryption"),
    (b"ARROW1", "looks like Arrow IPC or Feather: write the table as Parquet"),
    (b"FEA1", "looks like Feather: write the table as Parquet"),
    (b"\x93NUMPY", f"looks like a NumPy array{_SAVE}"),
    (b"SQLite format 3\0", "looks like a SQLite database: export the table as CSV"),
    (b"\x89HDF\r\n", f"looks like HDF5{_SAVE}"),
    (b"ORC", f"looks like ORC{_SAVE}"),
    (b"Obj\x01", f"looks like Avro{_SAVE}"),
    (b"\xd0\xcf\x11\xe0", "looks like an old Excel workbook: save its sheet as CSV"),
    (b"%PDF", f"looks like PDF{_SAVE}"),
    (b"7z\xbc\xaf\x27\x1c", "looks like a 7z archive: unpack it first"),
    (b"Rar!", "looks like a RAR archive: unpack it first"),
    (b"\xfd7zXZ\0", "is compressed with xz: unpack it, or use gzip, bz2 or zstd"),
    (b"\x89PNG", f"looks like a picture{_SAVE}"),
    (b"\xff\xd8\xff", f"looks like a picture{_SAVE}"),
    (b"RDX", f"looks like R data{_SAVE}"),
    (b"\x1f\x8b", "is compressed: let its name end in .gz"),
    (b"BZh", "is compressed: let its name end in .bz2"),
    (b"\x28\xb5\x2f\xfd", "is compressed: let its name end in .zst"),
    (b"\x04\x22\x4d\x18", "is compressed: let its name end in .lz4"),
    (b"version https://git-lfs", "is a Git LFS pointer: fetch it with git lfs pull"),
)
_ZIPS: tuple[tuple[bytes, str], ...] = (
    (rb"\[Content_Types\]\.xml|xl/", "is an Excel workbook: save its sheet as CSV"),
    (rb"opendocument", "is an OpenDocument file: save its sheet as CSV"),
    (rb"/data\.pkl|/byteorder", f"looks like PyTorch data{_LOAD}"),
    (rb"\.npy", f"looks like NumPy arrays (npz){_LOAD}"),
    (rb"", "looks like a zip archive: unpack it first"),
)
_TEXTS: tuple[tuple[str, str], ...] = (
    (r"(<\?xml.*?|<!--.*?)*<graphml", f"looks like GraphML{_LOAD}"),
    (r"(<\?xml.*?|<!--.*?)*<gexf", "looks like GEXF: export it as GraphML or CSV"),
    (r"<!doctype html|<html|<head|<body", "looks like a web page: download the table"),
    (r"<\?xml|<[a-z]+[ >]", f"looks like XML{_SAVE}"),
    (r"\s*\{\s*\"(directed|multigraph|graph|nodes|links|edges)\"\s*:",
     f"looks like node-link JSON{_LOAD}"),
    (r"\s*\{\s*\"[^\"\n]*\"\s*:[^\n]*\}\s*(\n\s*\{|$)",
     f"looks like JSON lines{_SAVE}"),
    (r"\s*(\{\s*\"[^\"]*\"\s*:|\[\s*[\[{])", f"looks like JSON{_SAVE}"),
    (r"\s*(graph|Creator)\s*(\".*?\"\s*graph\s*)?\[", "looks like GML: export it as "
     "GraphML or CSV"),
    (r"(strict\s+)?(di)?graph\s*\S*\s*\{", "looks like Graphviz DOT: export it as "
     "GraphML or CSV"),
    (r"\*vertices", "looks like a Pajek network: export it as GraphML or CSV"),
    (r"%%MatrixMarket", "looks like a Matrix Market file: write its rows as CSV"),
)  # fmt: skip


def looks_like(head: bytes, name: str) -> str | None:
    """How a message about a file goes on after its name; None: nothing is recognised.

    Parameters
    ----------
    head
        The first bytes of the file, decompressed.
    name
        Name of the file.
    """
    if not head:
        return "is empty: write it again, with at least one row"
    if head[:2] == b"\x80\x02" or (head[:1] == b"\x80" and head[1:2] in b"\3\4\5"):
        return (
            "looks like a Python pickle, which is never opened because that can run "
            "code: write the table as Parquet (DataFrame.to_parquet)"
        )
    if head.startswith(b"PK\3\4"):
        return next(words for part, words in _ZIPS if re.search(part, head[:4096]))
    if head[257:262] == b"ustar":
        return "looks like a tar archive: unpack it first"
    for first, words in _SIGNATURES:
        if head.startswith(first):
            return words
    if name.endswith((".metis", ".graph")):
        return f"looks like a METIS graph{_LOAD}"
    start = head[:4096].decode("utf-8", "replace").removeprefix("\ufeff")
    for pattern, words in _TEXTS:
        if re.match(pattern, start, re.IGNORECASE | re.DOTALL):
            return words
    return None
