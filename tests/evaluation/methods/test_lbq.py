"""LBQ against the median over nodes of a plain loop, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.evaluation.methods.graphs import hide, prepare_graph
from xnq_dist.core.errors import InputError
from xnq_dist.evaluation.methods.lbq import lbq, link_prevalence


def twin(network, labels) -> float:
    groups = {c: [v for v in network if labels[v] == c] for c in (-1, 0, 1)}
    solved = []
    for k in network:
        share = {
            c: sum(network.has_edge(v, k) for v in group) / len(group)
            for c, group in groups.items()
        }
        if share[1] != share[0]:
            solved.append((share[-1] - share[0]) / (share[1] - share[0]))
    return float(np.clip(np.median(solved), 0, 1))


def test_agrees_with_a_plain_loop_and_with_itself_for_any_partitions(
    tmp_path, thread_client
):
    labels = hide(140, 2, 0.5, 3)
    labels[2] = labels[1]
    labels[2, :40] = -1
    answers = []
    for partitions in (1, 2, 3):
        prepared = prepare_graph(tmp_path / str(partitions), partitions, edges=1500)
        where = (prepared.graph, prepared.manifest, prepared.attempt())
        answers.append(lbq(thread_client, *where, labels).tolist())
        assert prepared.files() == []
    assert answers[0] == answers[1] == answers[2]
    expected = [twin(prepared.network, row) for row in labels]
    assert answers[0] == pytest.approx(expected, abs=1e-9)
    assert len(set(answers[0])) == 3


def test_finds_the_prevalence_when_links_tell_the_classes_apart():
    # Of 100 labelled nodes of each class, 80 or 20 link to a node of their side.
    links = np.array([[50 * 0.8 + 50 * 0.2, 20, 80], [44, 80, 20], [0, 0, 0]])
    found = link_prevalence(links, np.array([100, 100, 100]))
    assert found == pytest.approx((0.5 + 0.6) / 2)


@pytest.mark.parametrize(
    ("totals", "words"),
    [
        ([0, 3, 3], "no unlabelled node"),
        ([3, 0, 3], "no negative node"),
        ([3, 3, 0], "no positive node"),
        ([3, 3, 3], "has no node for which the shares of links"),
    ],
)
def test_what_cannot_be_solved_is_refused(totals, words):
    with pytest.raises(InputError, match=f"variant 4 .*{words}"):
        link_prevalence(np.array([[1, 2, 2], [0, 1, 1]]), np.array(totals), 4)
