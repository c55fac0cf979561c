"""A manifest goes to workers as a reference to its file."""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from xnq_dist.core.errors import StageError
from xnq_dist.core.store import Manifest, RunDirectory, Stage


def written(stage: Stage, count: int) -> Manifest:
    attempt = stage.begin()
    files = [
        attempt.write_arrays(f"part-{number:05d}", values=np.arange(2))
        for number in range(count)
    ]
    facts = {"sizes": list(range(count))}
    return attempt.commit(files, {"seed": 1}, facts)


def test_its_bytes_are_independent_of_the_number_of_files(tmp_path):
    run = RunDirectory(tmp_path)
    few, many = (written(run.stage(name), n) for name, n in (("a", 1), ("b", 300)))
    sizes = [len(pickle.dumps(manifest)) for manifest in (few, many)]
    assert sizes[0] == sizes[1] < 1000
    again = copy(many)
    assert again == many
    assert again.facts == {"sizes": list(range(300))}
    assert again.named("part-00299-") == [many.files[299]]
    # Sent on by a worker it stays a reference.
    assert len(pickle.dumps(again)) < 1000


def test_a_changed_copy_is_sent_whole(tmp_path):
    manifest = written(RunDirectory(tmp_path).stage("a"), 3)
    changed = replace(manifest, facts={"other": 1})
    assert copy(changed) == changed


def test_a_stage_that_was_made_again_is_refused(tmp_path):
    stage = RunDirectory(tmp_path).stage("a")
    sent = pickle.dumps(written(stage, 1))
    written(stage, 2)
    with pytest.raises(StageError, match="was made again"):
        pickle.loads(sent)  # noqa: S301 - written above
