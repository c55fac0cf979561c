import numpy as np
import pytest

from tests.readout.samples import fit_readout_arrays, states
from xnq_dist.core.settings import ReadoutSettings
from xnq_dist.readout.fit import SavedReadout, posteriors
from xnq_dist.readout.logistic import decision


def saved_readout(roles=None, classes=3, dtype=np.float32):
    """A readout of every third of 300 nodes; their embeddings and places."""
    x, y = states(300, 12, classes)
    x = x.astype(dtype)
    index = np.arange(2, 300, 3)
    settings = ReadoutSettings(C=1.0)
    own = x[index], y[index], roles, classes, settings, 0
    return x, index, fit_readout_arrays(*own, index=index)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_labelled_rows_keep_their_out_of_fold_posterior(dtype):
    x, index, saved = saved_readout(dtype=dtype)
    found, out_of_fold = posteriors(x, np.arange(300), saved)
    np.testing.assert_array_equal(np.flatnonzero(out_of_fold), index)
    np.testing.assert_array_equal(found[index], saved.held_out_posteriors)
    own = saved.calibration.apply(decision(saved.model, x))
    rest = np.setdiff1d(np.arange(300), index)
    np.testing.assert_array_equal(found[rest], own[rest])
    assert (found[index] != own[index]).any()
    assert found.dtype == np.float32


def test_a_readout_survives_the_file(tmp_path):
    x, _, saved = saved_readout()
    np.savez(tmp_path / "readout.npz", allow_pickle=False, **saved.to_arrays())
    with np.load(tmp_path / "readout.npz", allow_pickle=False) as arrays:
        again = SavedReadout.from_arrays(dict(arrays))
    for before, after in zip(
        posteriors(x, np.arange(300), saved),
        posteriors(x, np.arange(300), again),
        strict=True,
    ):
        np.testing.assert_array_equal(before, after)
    assert len(again.fold_models) == 5
    np.testing.assert_array_equal(again.fold_models[1].coef, saved.fold_models[1].coef)
    np.testing.assert_array_equal(again.prior, saved.prior)
    np.testing.assert_array_equal(again.folds, saved.folds)
