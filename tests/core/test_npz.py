"""Arrays are read as NumPy wrote them, by one reader or many at once."""

import gc
import io
import sys
import threading
import zipfile

import numpy as np
import pytest

from xnq_dist.core.npz import read_npz, read_row_blocks

ARRAYS = {
    "rows": np.arange(12, dtype=np.int64).reshape(3, 4),
    "columns": np.asfortranarray(np.random.default_rng(1).normal(size=(4, 3, 2))),
    "empty": np.empty((0, 7), dtype=np.float32),
    "text": np.array(["a", "größer"]),
    "number": np.array(2.5),
    "truth": np.array([True, False]),
}


def written(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_agrees_with_numpy(save):
    stream = io.BytesIO()
    save(stream, **ARRAYS)
    with np.load(io.BytesIO(stream.getvalue()), allow_pickle=False) as expected:
        found = read_npz(io.BytesIO(stream.getvalue()))
        assert list(found) == expected.files
        for name, values in expected.items():
            assert found[name].dtype == values.dtype
            assert found[name].flags.f_contiguous == values.flags.f_contiguous
            np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_stream_that_checks_itself_is_read_directly(save):
    stream = io.BytesIO()
    save(stream, **ARRAYS)
    whole = read_npz(io.BytesIO(stream.getvalue()))
    for name, values in read_npz(stream, checked=True).items():
        assert values.flags.f_contiguous == whole[name].flags.f_contiguous
        np.testing.assert_array_equal(values, whole[name])
    blocks = list(read_row_blocks(stream, "rows", 2, checked=True))
    np.testing.assert_array_equal(np.concatenate(blocks), ARRAYS["rows"])


def test_an_array_longer_than_a_slab(monkeypatch):
    monkeypatch.setattr("xnq_dist.core.npz._SLAB", 1000)
    values = np.random.default_rng(2).normal(size=777)
    np.testing.assert_array_equal(
        read_npz(io.BytesIO(written(values=values)))["values"], values
    )


def test_reads_the_named_array_alone():
    data = io.BytesIO(written(**ARRAYS))
    assert list(read_npz(data, ["text"])) == ["text"]
    with pytest.raises(KeyError, match="absent"):
        read_npz(data, ["absent"])


def test_refuses_objects_short_arrays_other_files():
    objects = io.BytesIO()
    np.savez(objects, pairs=np.array([{}, None], dtype=object))
    with pytest.raises(ValueError, match="array pairs holds Python objects"):
        read_npz(objects)
    header = io.BytesIO()
    np.save(header, np.arange(100))
    short = io.BytesIO()
    with zipfile.ZipFile(short, "w") as archive:
        archive.writestr("values.npy", header.getvalue()[:-8])
    with pytest.raises(ValueError, match="array values ends after 792 bytes"):
        read_npz(short)
    with pytest.raises(zipfile.BadZipFile):
        read_npz(io.BytesIO(b"not an archive"))


class Cycle:
    """Garbage whose finaliser lets other threads run during a parse."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        for _ in range(3):
            pass


def test_many_threads_read_at_once():
    """With `numpy.load`, CPython 3.11.7 ends this in a SystemError."""
    data = written(**{f"values{n}": np.zeros((3, 4)) for n in range(20)})
    seen: list[int] = []

    def read() -> None:
        for _ in range(40):
            Cycle()
            seen.append(len(read_npz(io.BytesIO(data))))

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(1, 1, 1)
    try:
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
    assert seen == [20] * 320


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_blocks_of_rows_are_the_array(rows):
    data = written(**ARRAYS)
    blocks = list(read_row_blocks(io.BytesIO(data), "rows", rows))
    assert [len(block) for block in blocks][:-1] == [rows] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate(blocks), ARRAYS["rows"])
    [empty] = read_row_blocks(io.BytesIO(data), "empty", rows)
    assert empty.shape == (0, 7)


def test_blocks_of_rows_refuse_other_orders_and_damage():
    data = written(**ARRAYS)
    with pytest.raises(ValueError, match="array columns is not in C order"):
        next(read_row_blocks(io.BytesIO(data), "columns", 2))
    at = data.index(ARRAYS["rows"].tobytes())
    damaged = data[:at] + b"\xff" + data[at + 1 :]
    with pytest.raises(zipfile.BadZipFile):
        list(read_row_blocks(io.BytesIO(damaged), "rows", 2))
