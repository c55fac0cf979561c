"""The command ``xnq-dist evaluate``."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Annotated, Any

import typer

from xnq_dist.app.output import (
    Config,
    Json,
    Set,
    begin,
    elapsed,
    print_json,
    seconds_text,
)
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.failures import stage_errors

__all__ = ["evaluate"]


Data = Annotated[
    list[str],
    typer.Option(
        help="Folder with nodes.parquet, edges.parquet and optionally "
        "splits.parquet (folds); or the folder's name in XNQ_DATA_DIR; or a graph "
        "of the paper (cora-2, tolokers, ...), which is downloaded to XNQ_DATA_DIR "
        "if it is not there. May be repeated."
    ),
]
Out = Annotated[str, typer.Option(help="Output folder; resumed if it exists.")]
Methods = Annotated[str, typer.Option(help="Names of methods, comma-separated.")]
Positive = Annotated[
    str | None, typer.Option(help="Evaluate this class against all others.")
]
Splits = Annotated[
    str | None,
    typer.Option(help="Table of folds; default: splits.parquet in the folder."),
]
Folds = Annotated[
    str | None, typer.Option(help="Folds to use, comma-separated; default: all.")
]
Draws = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of random hyperparameter settings to try; default: 100. With "
        "--communities, of random draws of the labelled nodes; default: 3.",
    ),
]
Quantifiers = Annotated[
    str | None,
    typer.Option(help="Names of quantifiers, comma-separated; default: all."),
]
LabelShares = Annotated[
    str | None,
    typer.Option(
        help="Shares of the labels to keep, comma-separated; default: 1, with "
        "--communities 0.6,0.06,0.012."
    ),
]
Communities = Annotated[
    str | None,
    typer.Option(
        help="Real communities instead of the paper's samples, comma-separated: "
        "leiden, bfs, walk, followers, random, whole, unions, attribute, given; "
        "app, by-class for samples."
    ),
]
Designs = Annotated[
    str,
    typer.Option(
        help="With --communities, which nodes have labels, comma-separated: "
        "random, half, balanced, positives, high_degree, region."
    ),
]


def evaluate(
    data: Data,
    out: Out,
    methods: Methods = "xnq",
    positive: Positive = None,
    splits: Splits = None,
    folds: Folds = None,
    draws: Draws = None,
    quantifiers: Quantifiers = None,
    label_shares: LabelShares = None,
    communities: Communities = None,
    designs: Designs = "random,half",
    config: Config = None,
    settings: Set = None,
    as_json: Json = False,
) -> None:
    """Compare methods and quantifiers on labelled graphs by the paper's protocol.

    With --communities, compare quantifiers on real communities, with the posteriors of
    the method xnq+.
    """
    from xnq_dist.core.redaction import redacted

    begin(f"reading {', '.join(str(redacted(name)) for name in data)}")
    from xnq_dist.app.running import console_progress
    from xnq_dist.core.config import load_settings
    from xnq_dist.core.records import QUANTIFIERS
    from xnq_dist.evaluation import comparison
    from xnq_dist.evaluation.community_cases import CasePlan
    from xnq_dist.evaluation.designs import DESIGNS
    from xnq_dist.evaluation.regions import KINDS

    chosen = load_settings(config or (), settings or ())
    asked = None
    if quantifiers:
        asked = _names(quantifiers, "--quantifiers", QUANTIFIERS)
    default = "1" if communities is None else "0.6,0.06,0.012"
    shares = _numbers(label_shares or default, "--label-shares", float)
    task: dict[str, Any] = {}
    if communities is None:
        task["label_shares"] = shares
        task["folds"] = folds and _numbers(folds, "--folds", int)
        run = partial(
            comparison.run_evaluation,
            methods=_names(methods, "--methods"),
            draws=draws or 100,
            quantifiers=asked,
        )
    elif methods not in ("xnq", "xnq+") or folds or splits:
        raise SettingsError(
            "--communities draws the labels itself and uses the method xnq+: remove "
            "--methods, --folds and --splits"
        )
    else:
        plan = CasePlan(
            _names(communities, "--communities", KINDS),
            shares,
            _names(designs, "--designs", DESIGNS),
            asked,
            draws or 3,
        )
        run = partial(comparison.run_communities_evaluation, plan=plan)
    with console_progress():
        names = dict.fromkeys(data)
        found = [comparison.find_data(one, splits, positive, **task) for one in names]
        with stage_errors(out, "evaluate"):
            summary = run(found, out, chosen)
    summary["seconds"] = elapsed()
    typer.echo(
        f"{summary['text']}\ndone in {seconds_text(summary['seconds'])}\n"
        f"  results {summary['results']}\n  tables  {summary['tables']}"
    )
    print_json(summary)


def _names(text: str, option: str, known: Collection[str] = ()) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise SettingsError(f"{option} is empty: give at least one name")
    for name in names:
        if known and name not in known:
            raise SettingsError(
                f"{option}: unknown name {name!r}: choose from {', '.join(known)}"
            )
    return list(dict.fromkeys(names))


def _numbers(text: str, option: str, kind: type[Any]) -> tuple[Any, ...]:
    names = _names(text, option)  # its error is a ValueError, too
    try:
        return tuple(map(kind, names))
    except ValueError as error:
        raise SettingsError(
            f"{option} {text!r} is not a list of numbers: separate them with commas"
        ) from error
