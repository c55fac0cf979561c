"""Every run gives the recorded answers, bit for bit.

On a machine whose products, functions or libraries differ from the recording's, to
1e-6; `tests.answers.record` says how to compare bits there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.answers.cases import CASES
from tests.answers.record import ANSWERS, HERE, RECORD, answer, environment

RECORDED = Path(os.environ.get("XNQ_ANSWERS", HERE))
TOLERANCE = 1e-6
GONE = {"parent", "weight", "weight_estimated", "n_effective", "benchmarked"}
GONE |= {"benchmarked_lower", "benchmarked_upper", "cv", "iterations"}
GONE |= {"converged", "fit_pvalue", "flagged"}
"""Recorded columns that tables no longer have."""


@pytest.fixture(scope="session")
def exact() -> bool:
    """Whether this machine computes as the one that recorded."""
    recorded = json.loads((RECORDED / RECORD).read_text())
    return all(recorded[name] == found for name, found in environment().items())


def numbers(column: pa.ChunkedArray) -> np.ndarray | None:
    """A column of floating numbers, or of lists of them; None for other columns."""
    array = column.combine_chunks()
    if pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    if not pa.types.is_floating(array.type):
        return None
    return array.to_numpy(zero_copy_only=False)


def check_table(found: pa.Table, recorded: pa.Table, exact: bool) -> None:
    gone = [name for name in recorded.column_names if name not in found.column_names]
    assert set(gone) <= GONE
    recorded = recorded.drop_columns(gone)
    assert found.schema.equals(recorded.schema)
    assert found.num_rows == recorded.num_rows
    for name in recorded.column_names:
        pair = numbers(found[name]), numbers(recorded[name])
        if pair[0] is None or pair[1] is None:
            assert found[name].equals(recorded[name]), name
        elif exact:
            assert found[name].is_null().equals(recorded[name].is_null()), name
            assert pair[0].tobytes() == pair[1].tobytes(), name
        else:
            # Shares to 1e-6; larger values, such as factors, to the same part of them.
            scale = np.maximum(np.abs(pair[1]), 1.0)
            found_in, due = (values / scale for values in pair)
            np.testing.assert_allclose(found_in, due, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_answers_are_the_recorded_ones(name, exact, tmp_path, request):
    several = CASES[name].workers > 1
    cluster = request.getfixturevalue("tls_settings") if several else None
    found = answer(name, HERE / name, tmp_path / "run", cluster)
    for table in ANSWERS:
        recorded = pq.read_table(RECORDED / name / f"{table}-answer.parquet")
        check_table(found[table], recorded, exact)


def test_a_changed_bit_of_a_posterior_is_seen():
    recorded = pq.read_table(HERE / "plain" / "posteriors-answer.parquet")
    flat = recorded["posterior"].combine_chunks().flatten().to_numpy().copy()
    flat[7] = np.nextafter(flat[7], 2, dtype=flat.dtype)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(flat), 2)
    at = recorded.column_names.index("posterior")
    changed = recorded.set_column(at, "posterior", lists.cast(recorded[at].type))
    with pytest.raises(AssertionError, match="posterior"):
        check_table(changed, recorded, exact=True)
    check_table(changed, recorded, exact=False)


def test_recorded_files_stay_small():
    assert sum(file.stat().st_size for file in HERE.rglob("*.*")) <= 6e6
