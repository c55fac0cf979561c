"""Which communities are suppressed, and what is left out of their rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.report.fake_run import prevalence_table
from xnq_dist.core.config import load_settings
from xnq_dist.core.schemas import conform
from xnq_dist.quantify.checks.disclosure import too_small
from xnq_dist.quantify.checks.quality import without_values


@pytest.mark.parametrize("labelled", ["count", "exclude"])
def test_communities_below_the_minimum_are_suppressed(labelled):
    chosen = (f"labelled={labelled}", "disclosure.min_size=5")
    arrays = {
        "n_nodes": np.array([4, 5, 9, 4]),
        "n_estimated": np.array([4, 4, 5, 0]),
        "prevalence": np.array([[0.5, 0.5]] * 3 + [[np.nan, np.nan]]),
    }
    found = too_small(arrays, load_settings(overrides=chosen))
    # Where nothing is estimated, the note says why.
    expected = [True, labelled == "exclude", False, False]
    assert found.tolist() == expected


def test_values_of_suppressed_communities_are_null_on_request():
    table = prevalence_table(["a", "b"], intervals=True)
    quality = pa.array(["suppressed", "suppressed", "caution", "caution"])
    at = table.schema.get_field_index("quality")
    table = table.set_column(at, "quality", quality)
    rows = conform(without_values(table), "prevalence", "here").to_pylist()
    kept = {"community", "class", "n_nodes", "quality", "method"}
    assert {n for n, v in rows[0].items() if v is not None} - {"note"} == kept
    assert rows[2:] == table.to_pylist()[2:]
