"""Every byte that is read from a file is compared with the file's checksums."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import flip
from xnq_dist.core.errors import DamagedError
from xnq_dist.core.store import CheckedFile, FileRecord, Folder, RunDirectory, Stage
from xnq_dist.core.store.checksums import BLOCK, ChecksumWriter

SIZE = 3 * BLOCK + 1234


def recorded(data: bytes, pieces: int = 1) -> FileRecord:
    writer = ChecksumWriter(io.BytesIO())
    for part in np.array_split(np.frombuffer(data, np.uint8), pieces):
        writer.write(part)
    return writer.record("file", 0)


@pytest.fixture(scope="module")
def data() -> bytes:
    return np.random.default_rng(0).bytes(SIZE)


def opened(data: bytes, record: FileRecord) -> io.BufferedReader:
    return io.BufferedReader(CheckedFile(io.BytesIO(data), record, "/run/stage"), BLOCK)


def test_checksums_are_independent_of_how_a_file_was_written(data):
    assert recorded(data) == recorded(data, 7) == recorded(data, 5000)
    assert len(recorded(data).checksum) == 4 * 8
    assert recorded(b"").checksum == ""


def test_every_read_gives_the_bytes_of_the_file(data):
    stream = opened(data, recorded(data))
    assert stream.read() == data
    assert stream.read(10) == b""
    assert stream.seek(-5, io.SEEK_END) == SIZE - 5
    assert stream.read() == data[-5:]
    empty = opened(b"", recorded(b""))
    assert empty.read() == b""


def test_the_blocks_that_are_read_are_compared_and_no_others(data):
    record, rng = recorded(data), np.random.default_rng(1)
    torn = bytearray(data)
    torn[BLOCK + 77] ^= 4
    sound, damaged = opened(data, record), opened(bytes(torn), record)
    buffer = bytearray(SIZE + 10)
    assert sound.readinto(buffer) == SIZE
    assert buffer[:SIZE] == data
    assert sound.readinto(buffer) == 0
    for _ in range(50):
        start, length = int(rng.integers(0, SIZE)), int(rng.integers(0, SIZE))
        part = data[start : start + length]
        assert sound.seek(start) == damaged.seek(start) == start
        assert sound.readinto(memoryview(buffer)[:length]) == len(part)
        assert sound.tell() == start + len(part)
        assert buffer[: len(part)] == part
        sound.seek(start)
        assert sound.read(length) == part
        if start < 2 * BLOCK and start + len(part) > BLOCK:
            words = "between byte 1048576 and 2097152"
            with pytest.raises(DamagedError, match=words):
                damaged.readinto(memoryview(buffer)[:length])
            damaged.seek(start)
            with pytest.raises(DamagedError, match=words):
                damaged.read(length)
        else:
            assert damaged.read(length) == part


@pytest.mark.parametrize("size", [0, BLOCK, SIZE - 1, SIZE + 1])
def test_file_of_another_size_is_refused(data, size):
    other = (data + b"x")[:size]
    with pytest.raises(DamagedError, match=f"has {size} bytes, not {SIZE}"):
        opened(other, recorded(data))


def test_missing_file_is_damage(tmp_path):
    record = FileRecord("gone.npy", 0, 3, "00000000")
    with (
        pytest.raises(DamagedError, match=r"gone\.npy is missing: run again"),
        Stage(str(tmp_path)).open(record),
    ):
        pass


def table(rows: int) -> pa.Table:
    rng = np.random.default_rng(2)
    values = pa.array(rng.random(rows * 64).astype(np.float32))
    return pa.table(
        {
            "node_id": np.arange(rows),
            "embedding": pa.FixedSizeListArray.from_arrays(values, 64),
        }
    )


def test_every_flipped_bit_of_a_table_is_found_by_its_reader(tmp_path):
    """Damage in pages, page headers and footer, when only some columns are read."""
    stage = RunDirectory(tmp_path).stage("embeddings")
    attempt = stage.begin()
    record = attempt.write_table("part-00000", table(20_000), "embeddings")
    path = stage.path(record.name)
    assert record.bytes > 4 * BLOCK
    whole = stage.read_table(record, "embeddings")
    first = Path(path).read_bytes()
    for at in np.random.default_rng(3).integers(0, record.bytes, 30).tolist():
        flip(path, at)
        with pytest.raises(DamagedError, match="differs from its checksum"):
            stage.read_table(record, "embeddings")
        flip(path, at)
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    flip(path, column.data_page_offset + 2 * BLOCK)
    ids = stage.read_table(record, "embeddings", ["node_id"])
    assert ids["node_id"].equals(whole["node_id"])
    Path(path).write_bytes(first[:-1])
    with pytest.raises(DamagedError, match="bytes, not"):
        stage.read_table(record, "embeddings", ["node_id"])


@pytest.mark.parametrize("rows", [1 << 15, 1 << 20])
def test_every_flipped_bit_of_an_array_is_found_by_its_reader(tmp_path, rows):
    stage = RunDirectory(tmp_path).stage("spectrum")
    values = np.random.default_rng(3).random((60_000, 20)).astype(np.float32)
    record = stage.begin().write_arrays("power-0", values=values, more=values[:5])
    path = stage.path(record.name)

    def read() -> np.ndarray:
        if rows < len(values):
            return np.concatenate(list(stage.row_blocks(record, "values", rows)))
        return stage.read_arrays(record)["values"]

    np.testing.assert_array_equal(read(), values)
    flip(path, BLOCK + 5)
    [few] = stage.row_blocks(record, "more", 5)
    np.testing.assert_array_equal(few, values[:5])
    flip(path, BLOCK + 5)
    for at in np.random.default_rng(4).integers(0, record.bytes, 5).tolist():
        flip(path, at)
        with pytest.raises(DamagedError, match="differs from its checksum"):
            read()
        flip(path, at)


def test_record_whose_digit_was_flipped_is_damaged(tmp_path):
    folder = Folder.of(tmp_path)
    values = {"seconds": 12.25, "facts": {"n": 3, "offsets": (0, 4), "x": None}}
    folder.write_record("a.json", values)
    back = folder.read_record("a.json")
    assert back == {"seconds": 12.25, "facts": {"n": 3, "offsets": [0, 4], "x": None}}
    assert folder.read_record("b.json") is None
    text = Path(tmp_path, "a.json").read_text()
    for wrong in (text.replace("12.25", "12.24"), "", text[:-9], '{"other": 1}', "[1]"):
        Path(tmp_path, "a.json").write_text(wrong)
        with pytest.raises(DamagedError, match=r"a\.json"):
            folder.read_record("a.json")
