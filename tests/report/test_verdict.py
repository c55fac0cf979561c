"""The verdict: one short text on skill, result, certainty and the next step."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.report.fake_run import prevalence_table, results_of, totals_table
from tests.report.test_page import changed_columns
from xnq_dist.core.config import load_settings
from xnq_dist.core.settings import Settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.report.page_data import Page
from xnq_dist.report.verdict import Verdict, verdict
from xnq_dist.report.wording import Naming
from xnq_dist.steps.view import PrevalenceView, shown_class

SKILL = {"value": 0.42, "lower": 0.36, "upper": 0.48}
WORDS = [
    "report.class_names={person: humans, bot: bots}",
    "report.community=page",
    "report.node=user",
]


def judged(
    table: pa.Table,
    overrides: list[str] | None = None,
    skill: dict | None = SKILL,
    folder: str = "/my runs/a",
) -> Verdict:
    settings = load_settings(overrides=overrides or [])
    classes = PrevalenceView(table).classes
    facts = {"readout": {"skill": skill}, "labels": {"n_labelled": 630}}
    made = results_of(table, settings, totals_table(classes), **facts)
    return verdict(Page(replace(made, directory=RunDirectory(folder))))


def test_the_answer_comes_first_and_the_next_step_last() -> None:
    made = judged(prevalence_table(list("abcdefgh"), intervals=True), WORDS)
    assert made.level == "well"
    first, pages, model, sure, step = made.lines
    assert first == "All users: 50 % bots (95 % interval 48–52 %)."
    assert (
        "of 8 pages differ by more than chance explains. Highest publishable: " in pages
    )
    assert model == (
        "The model separates bots from humans well (630 labelled users; log-loss 42 % "
        "below guessing)."
    )
    assert sure.startswith("How sure: ")
    assert "narrower than 30 points" in sure
    assert "label-plan '/my runs/a' --budget 50" in step
    gone = f"{tempfile.gettempdir()}/xnq-dist-a1/run"
    table = prevalence_table(list("abcdefgh"), intervals=True)
    assert judged(table, folder=gone).lines[-1] == (
        "Next: label more nodes. xnq-dist label-plan chooses them for a run that "
        "estimate_prevalence keeps (out=FOLDER), with memberships by their path."
    )


def test_a_quantifier_without_intervals_is_said_to_have_none() -> None:
    """Where all nodes have labels and these do not count, `auto` has none either."""
    table = prevalence_table(list("abcdefgh"), intervals=False)
    said = [judged(table, [f"quantifier={name}"]).lines[-1] for name in ("sld", "auto")]
    assert [line.startswith("Next: set quantifier=auto") for line in said] == [
        True,
        False,
    ]


def test_the_named_community_has_the_highest_share() -> None:
    table = prevalence_table(list("abcdefgh"), intervals=True)
    shares = dict(zip(table["community"].to_pylist()[1::2], range(8), strict=True))
    share = np.where(np.arange(16) % 2, 0.1, 0.9)
    share[2 * shares["d"] :][:2] = 0.4, 0.6
    # The lower end of another is higher.
    lower = np.where(np.arange(16) % 2, 0.08, 0.88)
    lower[2 * shares["d"] :][:2] = 0.2, 0.05
    made = changed_columns(table, prevalence=share, lower=lower)
    assert "Highest publishable: d, 60 %" in judged(made, WORDS).lines[1]
    numbers = pa.array(np.repeat(np.arange(8), 2))
    made = made.set_column(
        made.schema.get_field_index("community"), "community", numbers
    )
    assert "Highest publishable: page 3, 60 %" in judged(made, WORDS).lines[1]


def test_the_named_community_is_one_that_may_be_published() -> None:
    table = prevalence_table(list("abcdefgh"), intervals=True)
    highest = judged(table, WORDS).lines[1].partition("Highest publishable: ")[2][0]
    poor = pc.equal(table["community"], highest)
    rating = pc.if_else(poor, "not publishable", "caution")
    made = judged(changed_columns(table, quality=rating.combine_chunks()), WORDS)
    assert "Highest publishable: " in made.lines[1]
    assert f"Highest publishable: {highest}" not in made.lines[1]


def test_the_named_community_is_above_the_total() -> None:
    table = prevalence_table(list("abcdefgh"), intervals=True)
    names = table["community"].to_pylist()[1::2]
    place = {name: 2 * at for at, name in enumerate(names)}
    # One is far below the others, and the one far above may not be published.
    share = np.full(16, 0.5)
    share[place["a"] :][:2] = 0.99, 0.01
    share[place["b"] :][:2] = 0.01, 0.99
    rating = np.array(["caution"] * 16, object)
    rating[place["b"] :][:2] = "not publishable"
    ends = {"lower": share - 0.01, "upper": share + 0.01}
    made = changed_columns(table, prevalence=share, quality=rating, **ends)
    text = judged(made, WORDS).lines[1]
    assert "Highest publishable: " in text
    assert "Highest publishable: a" not in text
    assert "Highest publishable: b" not in text


@pytest.mark.parametrize(
    ("value", "lower", "level"),
    [
        (0.4, 0.3, "well"),
        (0.2, 0.1, "fairly"),
        (0.05, 0.01, "weakly"),
        (0.05, -0.01, "warning"),
        (-0.2, -0.3, "warning"),
    ],
)
def test_skill_is_named(value: float, lower: float, level: str) -> None:
    skill = {"value": value, "lower": lower, "upper": 0.5}
    made = judged(prevalence_table(["a", "b"], intervals=True), WORDS, skill)
    assert made.level == level
    warned = made.lines[0].startswith("The model is no better than the class shares")
    assert warned == (level == "warning")


def test_a_suppressed_community_is_counted_and_its_name_hidden() -> None:
    table = prevalence_table(["tiny", "b", "c"], intervals=True)
    share = np.array([0.0, 1.0, 0.5, 0.5, 0.6, 0.4])
    table = changed_columns(
        table,
        prevalence=share,
        lower=share * 0.9,
        quality=[*["suppressed"] * 2, *["caution"] * 4],
    )
    text = " ".join(judged(table).lines)
    assert "; 1 is suppressed." in text
    assert "tiny" not in text


def test_the_class_with_the_fewest_labels_is_shown_unless_classes_are_numbers() -> None:
    report = Settings().report
    assert shown_class(["bot", "human"], [30, 500], report) == "bot"
    assert shown_class(["bot", "human"], [500, 500], report) == "human"
    assert shown_class(["0", "1"], [30, 500], report) == "1"
    assert shown_class(["false", "true"], [3, 500], report) == "true"
    assert shown_class([], [], report) == ""
    chosen = load_settings(overrides=["report.class=0"]).report
    assert shown_class(["0", "1"], [30, 500], chosen) == "0"


def test_the_shown_class_is_put_last() -> None:
    table = prevalence_table(["a", "b"], ("x", "y", "z"))
    view = PrevalenceView(table, "x")
    assert view.classes == ("y", "z", "x")
    straight = PrevalenceView(table)
    assert np.array_equal(view.prevalence[:, 2], straight.prevalence[:, 0])


def test_words_have_a_plural() -> None:
    settings = load_settings(
        overrides=["report.community=county", "report.node=[person, people]"]
    )
    naming = Naming(settings.report)
    assert naming.some_communities(1200) == "1,200 counties"
    assert (naming.nodes(1), naming.nodes()) == ("person", "people")
