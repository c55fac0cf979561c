"""Streams a text file of fields, also compressed, in blocks of lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xnq_dist.convert.reading import check_memory
from xnq_dist.core.errors import InputError
from xnq_dist.graph.formats.sniffing import compression_of

__all__ = ["Block", "blocks_of"]

BLOCK = 1 << 24
"""Bytes of a block."""
LONGEST = 1 << 28
"""Maximum bytes of a line: a node with some 30 million neighbours."""


@dataclass(frozen=True)
class Block:
    """Some lines of a file, without comments."""

    lines: pa.Array
    numbers: NDArray[np.int64]
    """Numbers of the lines in the file, from 1."""
    comments: list[str]


def blocks_of(path: Path, marks: str, blank: bool = False) -> Iterator[Block]:
    """Yield the lines of a file.

    Parameters
    ----------
    marks
        First characters of comments.
    blank
        Whether empty lines count.

    Raises
    ------
    InputError
        When the file is not text, or a line is too long.
    DoesNotFitError
        When what was read does not fit in memory.
    """
    first, total = 1, 0
    for data in _pieces(path):
        total += len(data)
        check_memory(path, 4 * total)
        try:
            text = data.decode("utf-8-sig" if first == 1 else "utf-8")
        except UnicodeDecodeError as error:
            line = first + data.count(b"\n", 0, error.start)
            raise InputError(
                f"{path} has the byte 0x{data[error.start]:02x} in line {line:,}, "
                "which is not UTF-8: write the file as UTF-8"
            ) from error
        lines = pa.array(text.split("\n"))
        if "\r" in text:
            lines = pc.utf8_rtrim(lines, "\r")
        numbers = np.arange(first, first + len(lines))
        first += len(lines)
        starts = pc.utf8_slice_codeunits(lines, 0, 1)
        is_comment = pc.is_in(starts, pa.array(list(marks)))
        comments = lines.filter(is_comment).to_pylist()
        kept = pc.invert(is_comment)
        if not blank:
            kept = pc.and_(kept, pc.not_equal(pc.utf8_trim_whitespace(lines), ""))
        yield Block(
            lines.filter(kept), numbers[kept.to_numpy(zero_copy_only=False)], comments
        )


def _pieces(path: Path) -> Iterator[bytes]:
    """Blocks of bytes that end where a line ends, without its last line feed."""
    with path.open("rb") as stream:
        head = stream.read(4)
    packed = compression_of(head)
    codec = None if packed == "none" else packed
    with pa.input_stream(str(path), compression=codec) as stream:
        rest = b""
        while data := stream.read(BLOCK):
            whole, feed, after = data.rpartition(b"\n")
            if feed:
                yield rest + whole
                rest = after
            else:
                rest += data
            if len(rest) > LONGEST:
                raise InputError(
                    f"{path} has a line of more than {LONGEST:,} bytes: check that it "
                    "is the right file"
                )
        if rest:
            yield rest
