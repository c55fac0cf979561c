"""wvRN against a plain loop, with the same bits for any partitioning."""

from __future__ import annotations

import numpy as np
import pytest

from tests.evaluation.methods.graphs import hide, prepare_graph
from xnq_dist.evaluation.methods.wvrn import wvrn


def twin(network, labels, classes, rounds, vote, base=None) -> list[np.ndarray]:
    """One variant, edge by edge, in float64."""
    known = labels[labels >= 0]
    prior = np.array([(known == c).mean() for c in range(classes)])
    guess = {
        v: np.eye(classes)[labels[v]]
        if labels[v] >= 0
        else (prior if base is None else base[v])
        for v in network
    }
    history = []
    for _ in range(rounds):
        after = {}
        for v in network:
            votes = np.zeros(classes)
            for u in network.predecessors(v):
                seen = guess[u]
                if vote == "hard":
                    seen = np.eye(classes)[np.argmax(seen)]
                votes += network[u][v]["weight"] * seen
            stays = labels[v] >= 0 or votes.sum() == 0
            after[v] = guess[v] if stays else votes / votes.sum()
        guess = after
        history.append(np.array([guess[v] for v in network]))
    return history


@pytest.mark.parametrize("vote", ["soft", "hard"])
def test_agrees_with_a_plain_loop_and_with_itself_for_any_partitions(
    vote, tmp_path, thread_client
):
    labels = hide(140, 3, 0.3, 3)
    answers = []
    for partitions in (1, 2, 3):
        prepared = prepare_graph(tmp_path / str(partitions), partitions)
        kept = wvrn(
            thread_client,
            prepared.graph,
            prepared.manifest,
            prepared.attempt(),
            labels,
            3,
            (1, 2, 5),
            vote,
        )
        answers.append({turn: kept(turn) for turn in (1, 2, 5)})
        assert len(prepared.files()) == 3 * partitions
    for turn in (1, 2, 5):
        first = answers[0][turn]
        assert first.shape == (3, 140, 3)
        np.testing.assert_array_equal(answers[1][turn], first)
        np.testing.assert_array_equal(answers[2][turn], first)
        for variant, row in enumerate(labels):
            expected = twin(prepared.network, row, 3, turn, vote)[-1]
            np.testing.assert_allclose(first[variant], expected, atol=1e-6)


def test_a_class_without_training_labels_gets_nothing(tmp_path, thread_client):
    prepared = prepare_graph(tmp_path, 1)
    labels = hide(140, 3, 0.4, 1)
    where = (prepared.graph, prepared.manifest, prepared.attempt())
    found = wvrn(thread_client, *where, labels, 3, (4,))(4)[0]
    assert (found[:, 2] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
