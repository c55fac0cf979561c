"""Pickles: numbers are read as by Python; other content is refused, not executed."""

from __future__ import annotations

import pickle
from collections import defaultdict

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array

from tests.evaluation.datasets.forms import python2_pickle
from xnq_dist.core.errors import InputError
from xnq_dist.evaluation.datasets.pickled import CsrArrays, read_pickled

MATRIX = csr_matrix(
    random_array((6, 9), density=0.4, rng=1, format="csr", dtype=np.float32)
)
NEIGHBOURS = defaultdict(list, {0: [1, 2], 5: [], 300: [70000]})


@pytest.fixture
def written(tmp_path):
    def write(data: bytes):
        path = tmp_path / "some.pickle"
        path.write_bytes(data)
        return path

    return write


def dense(found: CsrArrays) -> np.ndarray:
    arrays = (found.data, found.indices, found.indptr)
    return csr_matrix(arrays, shape=found.shape).toarray()


@pytest.mark.parametrize(
    "dumped",
    [python2_pickle, *(lambda v, p=p: pickle.dumps(v, p) for p in range(1, 5))],
    ids=["python 2", "protocol 1", "protocol 2", "protocol 3", "protocol 4"],
)
def test_arrays_matrices_and_dicts_of_any_writer_are_the_same(written, dumped):
    hot = np.array([[0, 1], [1, 0], [-7, 2**31 - 1]], np.int32)
    assert np.array_equal(read_pickled(written(dumped(hot))), hot)
    column_major = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    if dumped is not python2_pickle:
        path = written(dumped(column_major))
        assert np.array_equal(read_pickled(path), column_major)
    found = read_pickled(written(dumped(MATRIX)))
    assert np.array_equal(dense(found), MATRIX.toarray())
    assert read_pickled(written(dumped(NEIGHBOURS))) == dict(NEIGHBOURS)


def test_arrays_of_another_byte_order_are_read(written):
    values = np.array([1.5, -2.0], ">f8")
    assert np.array_equal(read_pickled(written(pickle.dumps(values, 2))), values)


class Harm:
    """Function that unpickling would call."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('ran')",))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (Harm(), "exec"),
        (np.array([Harm()], object), "array of object"),
        ({"a": {1, 2}}, "EMPTY_SET|set"),
        (np.datetime64("2020-01-01"), "names numpy"),
        ("just a text", "is a str"),
        (defaultdict(dict, {1: 2}), "names .*dict"),
    ],
    ids=["code", "objects", "sets", "dates", "text", "other defaults"],
)
def test_what_is_no_plain_number_is_refused_by_name(written, content, reason):
    with pytest.raises(InputError, match=reason):
        read_pickled(written(pickle.dumps(content, 4)))


def test_known_names_in_unknown_calls_are_refused(written):
    calls = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nc__builtin__\nlist\n\x85R."
    with pytest.raises(InputError, match="unsupported way"):
        read_pickled(written(calls))
    with pytest.raises(InputError, match="unsupported way"):
        read_pickled(written(b"\x80\x02K\x01)R."))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>not found</html>",
        python2_pickle(MATRIX)[:-40],
        python2_pickle(MATRIX)[:-1],
        b"\x80\x02t.",
        b"\x80\x02K\x01a.",
        b"\x80\x02K\x01K\x02K\x03s.",
        b"\x80\x02K\x01K\x02b.",
        b"\x80\x02h\x07.",
        b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81.",
    ],
    ids=[
        "empty",
        "a web page",
        "cut off",
        "no end",
        "no mark",
        "append to a number",
        "key of a number",
        "fill a number",
        "memory that is empty",
        "never filled",
    ],
)
def test_a_damaged_pickle_is_reported_in_one_sentence(written, data):
    with pytest.raises(InputError, match=r"some\.pickle is not a pickle of plain"):
        read_pickled(written(data))


def test_a_missing_pickle_is_named(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_pickled(tmp_path / "absent")


def test_a_matrix_whose_arrays_disagree_is_refused(written):
    broken = MATRIX.copy()
    broken.indices[0] = 99
    with pytest.raises(InputError, match="inconsistent arrays"):
        read_pickled(written(python2_pickle(broken)))
