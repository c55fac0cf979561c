"""Roles and label weights."""

from __future__ import annotations

from collections.abc import Iterable

from tests.app.wrong.builders import NODES, Case, at, edit, sets


def roles_cases() -> Iterable[Case]:
    by_turns = ["train", "train", "train", "calibration", "calibration", None] * 10
    right = edit(NODES, role=by_turns)
    for typo in ("Train", " calibration", "CALIBRATION"):
        role = typo.strip().lower()
        yield Case(
            f"role-{typo.strip()}",
            edit(NODES, role=[typo if v == role else v for v in by_turns]),
            ("'role'", repr(typo), "'train' and 'calibration'"),
            right=right,
        )
    yield Case(
        "class-without-calibration",
        edit(NODES, role=["train" if v % 3 else None for v in range(60)]),
        ("'role'", "'calibration'", "both roles"),
        right=right,
    )
    yield Case(
        "class-without-training",
        edit(NODES, role=["calibration" if v % 3 == 0 else "train" for v in range(60)]),
        ("'role'", "'bot'", "'train'", "cross-fit"),
        right=right,
    )
    yield Case(
        "role-test",
        edit(NODES, role=["test" if v is None else v for v in by_turns]),
        ("'role'", "'test' (10)", "taken as unlabelled"),
        right=right,
        status=0,
    )
    yield Case(
        "every-role-another",
        edit(NODES, role=["valid"] * 60),
        ("'label'", "role other than train", "null for every node"),
        right=right,
    )
    yield Case(
        "lists-as-roles",
        edit(NODES, role=[["train"]] * 60),
        ("role column 'role'", "list"),
        right=right,
    )
    drawn = sets("labels.drawn=weighted", "columns.label_weight=chance")
    for name, value, shown in (
        ("negative", -1.0, "-1.0"),
        ("zero", 0.0, "0.0"),
        ("null", None, "None"),
        ("infinite", float("inf"), "inf"),
    ):
        yield Case(
            f"label-weight-{name}",
            edit(NODES, chance=at(2, value)([1.5] * 60)),
            ("'chance'", shown, "row 3", "columns.label_weight"),
            right=edit(NODES, chance=[1.5] * 60),
            arguments=drawn,
        )
    yield Case(
        "label-weight-text",
        edit(NODES, chance=["high"] * 60),
        ("'chance'", "string", "numbers"),
        right=edit(NODES, chance=[2] * 60),
        arguments=drawn,
    )
    yield Case(
        "label-weight-without-its-design",
        edit(NODES, chance=[1.0] * 60),
        ("labels.drawn = weighted", "columns.label_weight"),
        arguments=drawn[1:],
        right=edit(NODES, chance=[1.0] * 60),
        right_arguments=drawn,
    )
