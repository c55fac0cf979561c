"""Settings and the place of results."""

from __future__ import annotations

from collections.abc import Iterable

from tests.app.wrong.builders import VALID, Case, put, sets


def settings_cases() -> Iterable[Case]:
    for name, setting, words, right in (
        ("unknown", "reservoir.dims=3", ("reservoir.dims", "reservoir.dim"), "seed=1"),
        ("no-section", "nope.x=1", ("nope",), "seed=1"),
        ("method", "method=magic", ("method", "xnq"), "method=xnq"),
        ("folds", "readout.folds=1", ("readout.folds",), "readout.folds=4"),
        ("level", "intervals.level=95", ("intervals.level",), "intervals.level=.9"),
        (
            "accept",
            "checks.accept=[all]",
            ("checks.accept",),
            "checks.accept=[few-matches]",
        ),
        (
            "prior-class",
            "labels.prior={Bot: .4, human: .6}",
            ("labels.prior", "classes Bot, human", "bot, human"),
            "labels.prior={bot: .4, human: .6}",
        ),
        (
            "prior-below-the-labels",
            "labels.prior={bot: .1, human: .9}",
            ("labels.prior", "'bot'", "16"),
            "labels.prior={bot: .4, human: .6}",
        ),
    ):
        yield Case(
            f"setting-{name}",
            VALID,
            words,
            arguments=sets(setting),
            right_arguments=sets(right),
        )
    yield Case(
        "no-settings-file",
        VALID,
        ("settings.yaml", "cannot be read"),
        right=put("settings.yaml", b"seed: 1"),
        arguments=("--config={folder}/settings.yaml",),
    )


def places_cases() -> Iterable[Case]:
    yield Case(
        "out-is-a-file",
        put("file", b"x"),
        ("File exists", "--out"),
        arguments=("--out={folder}/file",),
        right_arguments=("--out={folder}/../other",),
    )
    yield Case(
        "out-in-a-file",
        put("file", b"x"),
        ("--out",),
        arguments=("--out={folder}/file/run",),
        right_arguments=("--out={folder}/../deep/run",),
    )
    yield Case(
        "out-holds-the-tables",
        VALID,
        ("lies in the run directory", "--out"),
        arguments=("--out={folder}",),
        right_arguments=("--out={folder}-run",),
    )
    yield Case(
        "out-is-a-folder-of-others",
        put("thesis/prevalence.parquet", b"mine"),
        ("is not a run directory", "--out"),
        arguments=("--out={folder}/thesis", "--overwrite"),
        right_arguments=("--out={folder}/../thesis",),
    )
