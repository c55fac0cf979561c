"""Arrays are read as NumPy wrote them, by one reader or many at once."""

import gc
import io
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from xnq_dist.core.npy import read_arrays, read_row_blocks, write_arrays

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
    write_arrays(stream, arrays)
    return stream.getvalue()


def test_arrays_come_back_by_name_in_their_order():
    found = read_arrays(io.BytesIO(written(**ARRAYS)))
    assert list(found) == list(ARRAYS)
    for name, values in ARRAYS.items():
        assert found[name].dtype == values.dtype
        assert found[name].flags.c_contiguous
        np.testing.assert_array_equal(found[name], values)
    assert read_arrays(io.BytesIO(written())) == {}
    # The first array holds the names, for any reader of NumPy's format.
    assert np.load(io.BytesIO(written(**ARRAYS))).tolist() == list(ARRAYS)


def test_objects_columns_short_arrays_and_other_files_are_refused():
    objects = io.BytesIO()
    np.save(objects, np.array(["pairs"]))
    np.save(objects, np.array([{}, None], dtype=object))
    objects.seek(0)
    with pytest.raises(ValueError, match=r"array pairs .* of Python objects"):
        read_arrays(objects)
    columns = io.BytesIO()
    np.save(columns, np.array(["columns"]))
    np.save(columns, np.zeros((2, 3), order="F"))
    columns.seek(0)
    with pytest.raises(ValueError, match="array columns is in Fortran's order"):
        read_arrays(columns)
    with pytest.raises(ValueError, match="values ends after 792 of 800 bytes"):
        read_arrays(io.BytesIO(written(values=np.arange(100))[:-8]))
    with pytest.raises(ValueError, match="magic string"):
        read_arrays(io.BytesIO(b"not an array"))


def test_objects_are_not_written():
    with pytest.raises(ValueError, match="allow_pickle"):
        written(pairs=np.array([{}, None], dtype=object))


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

    def read(_):
        for _ in range(40):
            Cycle()
            assert len(read_arrays(io.BytesIO(data))) == 20

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(1, 1, 1)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(read, range(8)))
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_blocks_of_rows_are_the_array(rows):
    data = written(first=np.arange(5), **ARRAYS)
    blocks = list(read_row_blocks(io.BytesIO(data), "rows", rows))
    assert [len(block) for block in blocks][:-1] == [rows] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate(blocks), ARRAYS["rows"])
    [empty] = read_row_blocks(io.BytesIO(data), "empty", rows)
    assert empty.shape == (0, 7)
