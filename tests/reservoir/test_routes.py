"""Blocks of other workers are read once, in their order."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.reservoir.mailbox import Mailbox


def block(rows: int, columns: int, value: float, dtype: str = "float32"):
    return np.full((rows, columns), value, dtype)


def test_blocks_are_read_once_they_are_there():
    mail = Mailbox({4: 5, 7: 2}, 3)
    assert mail.owners(0, 0.01) == set()
    mail.put(0, 7, block(2, 3, 1, "float16"))
    assert mail.owners(0, 0.01) == mail.owners(1, 0.01) == {7}
    mail.put(0, 4, block(5, 3, 2, "float16"))
    assert mail.owners(1, 0.01) == {4, 7}
    assert mail.read(4).dtype == np.float16
    assert set(mail.read(4).ravel()) == {2}


def test_a_sender_is_let_one_generation_ahead_and_no_further():
    mail = Mailbox({0: 1}, 2)
    assert mail.admits(1)
    assert not mail.admits(2)
    mail.put(0, 0, block(1, 2, 1))
    with pytest.raises(
        ConnectionError, match="block of partition 0, generation 2: gen"
    ):
        mail.put(2, 0, block(1, 2, 1))
    mail.reach(1)
    assert mail.admits(2)
    # Old blocks are dropped, and late blocks are not read.
    mail.put(0, 0, block(1, 2, 1))
    assert mail.owners(0, 0.01) == set()


def test_unexpected_blocks_are_refused():
    """A block twice, of another shape, or of a partition that is not read."""
    mail = Mailbox({0: 2}, 3)
    mail.put(0, 0, block(2, 3, 0))
    refused = (0, block(2, 3, 1)), (0, block(2, 2, 1)), (3, block(2, 3, 1))
    for owner, wrong in refused:
        with pytest.raises(ConnectionError, match="unexpected block"):
            mail.put(0, owner, wrong)
    assert set(mail.read(0).ravel()) == {0}
