"""What a file that `run` does not read looks like, by its first bytes."""

from __future__ import annotations

import re

__all__ = ["looks_like"]

_LOAD = (
    ", which run does not read: load it in Python and pass the graph to "
    "estimate_prevalence (docs/how-to/other-formats.md)"
)
_KINDS: tuple[tuple[bytes, str], ...] = (
    (rb"$", "is empty: write it again, with at least one row"),
    (rb"PAR1", "looks like Parquet: rename it to end in .parquet"),
    (
        rb"\x80[\x02-\x05]",
        "looks like a Python pickle, which is never opened because that can run code: "
        "write the table as Parquet (DataFrame.to_parquet)",
    ),
    (
        rb"PK\x03\x04.*(\[Content_Types\]\.xml|xl/|opendocument)|\xd0\xcf\x11\xe0",
        "is a workbook: save its sheet as CSV",
    ),
    (rb"PK\x03\x04.*(/data\.pkl|/byteorder)", f"looks like PyTorch data{_LOAD}"),
    (rb"PK\x03\x04.*\.npy", f"looks like NumPy arrays (npz){_LOAD}"),
    (rb"PK\x03\x04", "looks like a zip archive: unpack it first"),
    (
        rb"\x1f\x8b|BZh|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18",
        "is compressed: let its name end in .gz, .bz2, .zst or .lz4",
    ),
    (rb"version https://git-lfs", "is a Git LFS pointer: fetch it with git lfs pull"),
    (rb"(<\?xml.*?|<!--.*?)*<graphml", f"looks like GraphML{_LOAD}"),
    (rb"<[!?a-z]", "looks like a web page or XML: save the table as CSV or Parquet"),
    (rb"\s*(\{\s*\"[^\"]*\"\s*:|\[\s*[\[{])",
     "looks like JSON: save the table as CSV or Parquet"),
)  # fmt: skip
"""Patterns of the first bytes; the first one that matches counts."""


def looks_like(head: bytes) -> str | None:
    """How a message about a file goes on after its name; None: nothing is recognised.

    `head`: the first bytes of the file, decompressed.
    """
    start = head[:4096].removeprefix(b"\xef\xbb\xbf")
    for pattern, words in _KINDS:
        if re.match(pattern, start, re.IGNORECASE | re.DOTALL):
            return words
    return None
