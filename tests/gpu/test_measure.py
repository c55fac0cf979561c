"""The measuring command, in small on the stand-in, so that it runs when needed."""

from __future__ import annotations

import csv

import numpy as np

from tests.gpu import measure
from tests.gpu.conftest import make_backend
from xnq_dist import backend as backends


def test_the_measuring_command_fails_or_says_what_cannot_be(tmp_path, monkeypatch):
    make_backend("standin")
    monkeypatch.setattr(backends, "gpu", backends.gpu)  # put back afterwards
    out = tmp_path / "rows.csv"
    parts = ["floor", "superstep", "sld", "genius", "memory"]
    rows = measure.main(["--standin", "--small", "--out", str(out), "--parts", *parts])
    with out.open() as stream:
        assert len(list(csv.DictReader(stream))) == len(rows)
    assert {row[0] for row in rows} == set(parts)
    found = {row[:3]: row[3] for row in rows}
    assert all(np.isfinite(value) for value in found.values())
    assert found["sld", "first 50", "largest difference from the CPU"] < 1e-9
    assert found["superstep", "dense-float32", "same bits run to run"] == 1
    assert 0 < found["superstep", "dense-bfloat16", "largest error"] < 0.05
    assert found["memory", "bfloat16", "plan"] < found["memory", "float32", "plan"]
