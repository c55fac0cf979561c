"""Histograms of HDy, DyS and DMy."""

from __future__ import annotations

import numpy as np
import pytest

from xnq_dist.quantify.classic.histograms import bin_places


@pytest.mark.parametrize("bins", [2, 7, 8, 110])
def test_bins_are_those_of_numpy_on_their_edges(bins):
    edges = np.linspace(0, 1, bins + 1)
    values = np.concatenate(
        [edges, np.nextafter(edges, 0).clip(0), np.nextafter(edges, 1).clip(0, 1)]
    )
    counts = np.bincount(bin_places([values], [bins])[:, 0], minlength=bins)
    np.testing.assert_array_equal(counts, np.histogram(values, bins, (0, 1))[0])
    outside = bin_places([np.array([-1e-7, 1 + 1e-7])], [bins])[:, 0]
    np.testing.assert_array_equal(outside, [0, bins - 1])
