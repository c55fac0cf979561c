"""The command `xnq-dist evaluate`."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.app.commands import ended
from tests.conftest import write_graph
from xnq_dist.evaluation.real import TRIVIAL
from xnq_dist.evaluation.rivals import RIVALS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--folds=a"], "--folds 'a' is not a list of numbers"),
        (["--folds=,"], "--folds is empty"),
        (["--methods=,"], "--methods is empty"),
        (["--quantifiers=guess"], "--quantifiers: unknown name 'guess': choose"),
        (["--communities=rings"], "unknown name 'rings': choose from leiden"),
        (["--communities=walk", "--designs=rare"], "unknown name 'rare': choose"),
    ],
)
def test_impossible_arguments_are_refused(tmp_path, capsys, arguments, words):
    base = ["evaluate", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert ended(*base, *arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.server
def test_evaluation_draws_its_own_labels(tmp_path, capsys, prefect_api):
    folder = str(tmp_path / "data")
    write_graph(tmp_path / "data", nodes=500, edges=4000, labelled=1.0)
    base = ["evaluate", "--data", folder, "--out", str(tmp_path / "out")]
    leiden = ("--communities", "leiden")
    for words, *more in (
        ("remove --methods, --folds and --splits", *leiden, "--folds", "0"),
        ("a share of 2 leaves no label to fit to", *leiden, "--label-shares", "2"),
    ):
        assert ended(*base, *more) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    done = ended(
        *base,
        "--communities=walk,whole,app",
        "--designs=random,positives",
        "--quantifiers=auto,pcc",
        "--label-shares=.5",
        "--draws=1",
        "--set=reservoir.dim=16",
        "--set=reservoir.supersteps=4",
        "--set=cluster.workers=1",
    )
    said = capsys.readouterr()
    assert done == 0, said.err
    assert "Errors and intervals on real communities" in said.out
    rows = pq.read_table(tmp_path / "out" / "community_results.parquet").to_pylist()
    assert {r["estimator"] for r in rows} == {"auto", "pcc", *TRIVIAL, *RIVALS, "floor"}
    assert {r["design"] for r in rows} == {"random", "positives"}
