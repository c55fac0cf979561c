"""The history: one row per community, class and run; nothing suppressed comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from tests.report.fake_run import NASTY, prevalence_table, write_fake_run
from xnq_dist.app.cli import app
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import RunDirectoryError, SettingsError
from xnq_dist.core.store import RunDirectory
from xnq_dist.steps import history as step
from xnq_dist.steps.history import read_history
from xnq_dist.steps.publish import publish

NAMES = [f"c{k:02d}" for k in range(12)]


def night(
    folder: Path, *overrides: str, names=NAMES, seed: int = 0, **columns
) -> RunDirectory:
    """Publish one run; `columns` replace those of the artificial table."""
    table = prevalence_table(names, intervals=True, seed=seed)
    columns = {"n_nodes": np.full(len(names), 60)} | columns
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        values = pa.array(np.repeat(values, 2)).cast(table.schema.field(at).type)
        table = table.set_column(at, table.schema.field(at), values)
    run = write_fake_run(folder, [table])
    publish(run, load_settings(overrides=["quantifier=auto", *overrides]))
    return run


def shares(run: RunDirectory, name: str) -> list[float | None]:
    rows = read_history(run.uri).select(name, "bot")
    return rows["prevalence"].to_pylist()


def test_every_run_has_a_row_for_each_community_and_class(tmp_path: Path) -> None:
    first = night(tmp_path / "run")
    assert len(read_history(first.uri).runs()) == 1
    night(tmp_path / "run", seed=1, names=[*NAMES[1:], "new"])
    run = night(tmp_path / "run", seed=2)
    history = read_history(run.uri)
    assert [(r.communities, r.new, r.gone) for r in history.runs()] == [
        (12, 0, 0),
        (12, 1, 1),
        (12, 1, 1),
    ]
    assert history.table.num_rows == 3 * 12 * 2
    versions = run.history()[::-1]
    assert [r.run for r in history.runs()] == [v.run_id for v in versions]
    for version in versions:
        rows = version.read("prevalence")
        of_run = pc.equal(history.table["run"], version.run_id)
        kept = history.table.filter(of_run)
        np.testing.assert_allclose(
            kept["prevalence"].to_numpy(), rows["prevalence"].to_numpy(), rtol=1e-6
        )
    changes = versions[2].read("changes")
    moved = changes.filter(pc.fill_null(changes["changed"], False))
    flagged = {*moved["community"].to_pylist()}
    assert {*history.changed()["community"].to_pylist()} == flagged


def test_history_outlives_removed_and_damaged_versions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(4):
        run = night(tmp_path / "run", "retention.versions=2", seed=seed)
    assert len(run.history()) == 2
    assert len(read_history(run.uri).runs()) == 4
    # The newest table is damaged: its run is left out, and the next one is published.
    current = run.current()
    path = Path(current.stage.path("history.parquet"))
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    assert len(read_history(run.uri).runs()) == 3
    assert current.run_id in caplog.text
    run = night(tmp_path / "run", "anomalies.last=null", seed=9)
    assert len(read_history(run.uri).runs()) == 4


def test_labels_that_are_booleans_have_a_history(tmp_path: Path) -> None:
    for seed in (0, 1):
        table = prevalence_table(NAMES, (False, True), intervals=True, seed=seed)
        run = write_fake_run(tmp_path / "run", [table], (False, True))
        publish(run, load_settings(overrides=["quantifier=auto"]))
    history = read_history(run.uri)
    assert len(history.runs()) == 2
    assert history.select(of_class="True").num_rows == 2 * len(NAMES)
    assert 'id="history"' in Path(run.uri, "report.html").read_text("utf-8")


def test_runs_that_cannot_be_compared_are_another_series(tmp_path: Path) -> None:
    night(tmp_path / "run")
    night(tmp_path / "run", "labelled=exclude", seed=1)
    run = night(tmp_path / "run", seed=2)
    history = read_history(run.uri)
    assert (len(history.runs()), history.others) == (2, 1)
    # Results that are published again are one run.
    publish(run, load_settings(overrides=["quantifier=auto", "report.node=user"]))
    assert len(run.history()) == 4
    assert len(read_history(run.uri).runs()) == 2


def test_suppressed_values_stay_hidden_in_later_runs(tmp_path: Path) -> None:
    size = np.full(12, 40)
    night(tmp_path / "run", n_nodes=size)
    quality = np.array(["caution"] * 12, object)
    quality[3] = "suppressed"
    run = night(tmp_path / "run", n_nodes=size, quality=quality, seed=1)
    assert shares(run, "c03") == [None, None]
    run = night(tmp_path / "run", n_nodes=size, seed=2)
    first, second, third = shares(run, "c03")
    assert (first, second) == (None, None)
    assert third is not None
    assert None not in shares(run, "c04")
    effects = read_history(run.uri).select("c03")["effect"].to_pylist()
    assert effects == [None] * 6


def test_results_that_come_back_are_a_run_of_their_own(tmp_path: Path) -> None:
    quality = np.array(["caution"] * 12, object)
    quality[3] = "suppressed"
    nights = {"seed": 0}, {"seed": 1, "quality": quality}, {"seed": 0}
    for columns in nights:
        run = night(tmp_path / "run", "anomalies.last=null", **columns)
    assert len(read_history(run.uri).runs()) == 3
    first, second, third = shares(run, "c03")
    assert (first, second) == (None, None)
    assert third is not None


def test_a_larger_min_size_holds_for_earlier_rows_too(tmp_path: Path) -> None:
    size = np.full(12, 40)
    size[3:5] = 17
    night(tmp_path / "run", n_nodes=size)
    larger = np.full(11, 40)
    names = [*NAMES[:3], *NAMES[4:]]
    more = ("disclosure.min_size=20",)
    run = night(tmp_path / "run", *more, names=names, n_nodes=larger, seed=1)
    assert shares(run, "c03") == [None]
    assert shares(run, "c04")[0] is None
    assert shares(run, "c05")[0] is not None
    changes = run.current().read("changes")
    for name, known in (("c03", False), ("c04", False), ("c05", True)):
        rows = changes.filter(pc.equal(changes["community"], name))
        assert pc.is_valid(rows["before"]).to_pylist() == [known] * 2
        assert pc.is_valid(rows["effect"]).to_pylist() == [known] * 2


@pytest.mark.parametrize(
    "other",
    [
        "memberships.drawn=by_class",
        "auto.pooled=false",
        "labels.prior={0: .6, 1: .4}",
    ],
)
def test_nights_with_another_estimator_are_another_series(
    tmp_path: Path, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    night(tmp_path / "run", other)
    run = night(tmp_path / "run", seed=1)
    name = other.partition("=")[0]
    assert f"earlier results: the results before had {name} = " in caplog.text
    (last,) = read_history(run.uri).runs()
    assert last.changed is None
    printed = CliRunner().invoke(app, ["history", run.uri]).stdout
    assert "0 gone, not compared" in printed


def test_the_oldest_runs_leave_a_full_table(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(step, "HISTORY_ROWS", 3 * 24)
    for seed in range(5):
        run = night(tmp_path / "run", seed=seed)
    assert len(read_history(run.uri).runs()) == 3


def test_the_page_lists_few_of_many_communities_from_two_runs_on(
    tmp_path: Path,
) -> None:
    names = [f"{name} {k}" for k in range(40) for name in NASTY]
    run = night(tmp_path / "run", names=names)
    page = Path(run.uri, "report.html")
    assert 'id="history"' not in page.read_text("utf-8")
    night(tmp_path / "run", names=names, seed=1)
    section = page.read_text("utf-8").split('id="history"')[1].split("</section>")[0]
    assert "<script>alert" not in section
    rows = section.count('<th scope="row">')
    assert 10 <= rows <= 25
    assert section.count('<td class="n">') == 2 * rows
    assert section.count(" %") >= 2 * rows


def test_the_command_prints_runs_and_rows(tmp_path: Path) -> None:
    def ran(*arguments: str):
        return CliRunner().invoke(app, ["history", *arguments])

    night(tmp_path / "run")
    where = night(tmp_path / "run", seed=1).uri
    assert ran(where).stdout.count("12 communities") == 2
    text = ran(where, "--community", "c03", "--class", "bot").stdout
    assert text.count("class bot") == 2
    for arguments, error, words in (
        ((str(tmp_path / "none"),), RunDirectoryError, "no published results"),
        ((where, "--community", "x"), SettingsError, "choose one"),
    ):
        refused = ran(*arguments).exception
        assert isinstance(refused, error)
        assert words in str(refused)
