from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.core.errors import InputError, StageError
from xnq_dist.graph import scratch
from xnq_dist.graph.csr import write_csr
from xnq_dist.graph.sort import PairSorter


def test_weights_that_add_up_beyond_float32_are_refused(tmp_path):
    zero = np.zeros(2, np.int64)
    with PairSorter(1, 1, 1 << 20, tmp_path, weighted=True) as sorter:
        sorter.add(zero, zero, np.array([3e38, 3e38]))
        with pytest.raises(
            InputError, match="add up to 6e\\+38, which is too large for float32"
        ):
            write_csr(sorter.chunks("sum"), 1, tmp_path, True)


def test_a_scratch_folder_that_cannot_be_written_names_the_setting(
    tmp_path,
):
    with pytest.raises(StageError, match="set scratch to a folder with more space"):
        scratch.append(tmp_path / "absent" / "x", np.arange(3))
    assert len(scratch.read(tmp_path / "absent", np.int64)) == 0
