"""Sizes in Parquet's page headers are compared with the footer before Arrow reads."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xnq_dist.core.errors import InputError
from xnq_dist.graph.formats.parquet_pages import check_pages
from xnq_dist.graph.tables import open_table

ROWS = 3000
TABLE = pa.table(
    {
        "src": np.random.default_rng(0).integers(0, 2**40, ROWS),
        "name": [f"{at % 70} " * 40 for at in range(ROWS)],
        "list": [[float(at)] * (at % 4) for at in range(ROWS)],
        "none": pa.nulls(ROWS, pa.string()),
    }
)


@pytest.mark.parametrize(
    ("packed", "version", "words"),
    list(product(["none", "snappy", "zstd"], ["1.0", "2.0"], [True, False])),
)
def test_pages_of_many_writers_pass(tmp_path, packed, version, words):
    pq.write_table(
        TABLE,
        tmp_path / "t.parquet",
        row_group_size=2000,
        data_page_size=4096,
        compression=packed,
        data_page_version=version,
        use_dictionary=words,
        write_page_index=words,
        write_page_checksum=not words,
    )
    with pa.OSFile(str(tmp_path / "t.parquet")) as stream:
        check_pages(stream, pq.read_metadata(stream), TABLE.column_names)
    rows = open_table(tmp_path / "t.parquet", "t").batches(["src", "name"])
    assert sum(batch.rows.num_rows for batch in rows) == ROWS


def number(value: int) -> bytes:
    """A zigzag number of Thrift's compact protocol."""
    value *= 2
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def damaged(file: Path, unpacked: int | None, packed: int | None) -> None:
    """A table whose first page header has other sizes."""
    pq.write_table(TABLE.select(["src"]), file, use_dictionary=False)
    chunk = pq.read_metadata(file).row_group(0).column(0)
    data = file.read_bytes()
    at = chunk.data_page_offset + 3  # after the type of the page
    sizes = []
    for _ in range(2):
        end = next(i for i in range(at, at + 5) if data[i] < 128)
        bits = (data[i] & 127 for i in range(end, at - 1, -1))
        value = 0
        for part in bits:
            value = value << 7 | part
        sizes.append(value >> 1)
        at = end + 2
    new = [sizes[0] if unpacked is None else unpacked]
    new.append(sizes[1] - 3 if packed is None else packed)
    header = b"\x15" + number(new[0]) + b"\x15" + number(new[1])
    begin = chunk.data_page_offset + 2
    grown = len(header) - (at - 1 - begin)
    file.write_bytes(data[:begin] + header + data[at - 1 : -grown - 600] + data[-600:])


@pytest.mark.parametrize(("unpacked", "packed"), [(2**31 - 1, None), (None, 2**31 - 1)])
def test_a_page_of_a_damaged_size_is_refused_before_memory_is_allocated(
    tmp_path, unpacked, packed
):
    damaged(tmp_path / "t.parquet", unpacked, packed)
    pq.write_table(pa.table({"src": np.arange(5000)}), tmp_path / "complete.parquet")
    # A pool of its own: that of the process remembers the peaks of all tests before.
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(pool)
    try:
        list(open_table(tmp_path / "complete.parquet", "t").batches(["src"]))
        with pytest.raises(
            InputError, match=r"t\.parquet is not .*damaged.*write it again"
        ):
            list(open_table(tmp_path / "t.parquet", "t").batches(["src"]))
    finally:
        pa.set_memory_pool(before)
    assert 0 < pool.max_memory() < 2**30


def test_any_bytes_in_place_of_a_page_header_are_refused(tmp_path):
    damaged(tmp_path / "t.parquet", None, None)
    data = (tmp_path / "t.parquet").read_bytes()
    for filler in (b"\xff", b"\0", b"\x1c", b"\x19", b"\x88"):
        (tmp_path / "t.parquet").write_bytes(data[:4] + filler * 300 + data[304:])
        with pytest.raises(InputError, match="damaged"):
            list(open_table(tmp_path / "t.parquet", "t").batches(["src"]))
