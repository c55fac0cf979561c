import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from xnq_dist.readout.folds import assign_folds


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(2, 40), min_size=2, max_size=6),
    folds=st.integers(2, 20),
    seed=st.integers(0, 2**63 - 1),
)
def test_folds_are_even_in_every_class_and_in_size(counts, folds, seed):
    labels = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    np.random.default_rng(seed).shuffle(labels)
    found = assign_folds(labels, folds, seed)
    made = max(2, min(folds, min(counts)))
    assert found.dtype == np.int32
    assert set(found) == set(range(made))
    for code in range(len(counts)):
        of_class = np.bincount(found[labels == code], minlength=made)
        assert of_class.max() - of_class.min() <= 1
    sizes = np.bincount(found, minlength=made)
    assert sizes.max() - sizes.min() <= 1


def test_folds_are_a_function_of_labels_and_seed_alone():
    labels = np.random.default_rng(1).integers(0, 3, 200).astype(np.int32)
    first = assign_folds(labels, 5, 7)
    np.random.default_rng(0).random(10)
    np.testing.assert_array_equal(first, assign_folds(labels.astype(np.int64), 5, 7))
    assert (first != assign_folds(labels, 5, 8)).any()
