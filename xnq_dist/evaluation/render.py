"""Everything an evaluation shows: tables, plots and one self-contained page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from xnq_dist.core.pictures import Picture, plain
from xnq_dist.core.store import Folder
from xnq_dist.evaluation import paper_figures as published
from xnq_dist.evaluation.bayes import NSAMPLES, comparison_tables
from xnq_dist.evaluation.figures import pictures
from xnq_dist.evaluation.names import shown, span
from xnq_dist.evaluation.paper import paper_tables
from xnq_dist.evaluation.paper_plots import AE_LIMIT
from xnq_dist.evaluation.rendered_table import (
    RenderedTable,
    to_html,
    to_latex,
    to_markdown,
)
from xnq_dist.evaluation.summary import Summary, costs, summarise

__all__ = ["outputs", "page", "render"]

LEAD = (
    "How far estimated class proportions are from the true ones, on samples of known "
    "proportions drawn from test nodes."
)
_SECTIONS = (
    ("errors", "Errors", r"(ae|rae)-"),
    ("ablation", "Ablation", r"ablation-"),
    ("comparison", "Bayesian comparison", r"comparison"),
    ("labels", "Fewer labels", r"label-shares"),
    ("time", "Time and memory", r"cost"),
    ("chosen", "What was chosen", r"selection"),
    ("far", "Where ours differs from the paper", r"differences"),
)
"""Anchor, heading and the names of the tables below it."""


def render(
    results: pa.Table,
    configurations: pa.Table,
    estimates: pa.Table,
    out: Folder | Callable[[str, bytes], object],
    nsamples: int = NSAMPLES,
) -> tuple[str, ...]:
    """Write what `outputs` makes.

    Parameters
    ----------
    results, configurations, estimates
        Schemas of these names; several data sets may be concatenated.
    out
        Where to: a folder, or what takes a name (with ``/``) and bytes.
    nsamples
        Draws of each Bayesian comparison.

    Returns
    -------
    tuple of str
        Names of the files, the page last.
    """
    made = outputs(results, configurations, estimates, nsamples)
    for name, data in made.items():
        if isinstance(out, Folder):
            inside, _, last = name.rpartition("/")
            folder = out.child(inside) if inside else out
            folder.create()
            folder.write_bytes(last, data)
        else:
            out(name, data)
    return tuple(made)


def outputs(
    results: pa.Table,
    configurations: pa.Table,
    estimates: pa.Table,
    nsamples: int = NSAMPLES,
) -> dict[str, bytes]:
    """Files by name: ``tables/*.{md,tex,html}``, ``figures/*.{svg,png}``, the page.

    The same tables give the same bytes.

    Raises
    ------
    StageError
        When the results do not say what validation chose, see `summary.choose`.
    """
    summary = summarise(results, estimates)
    tables = [
        *paper_tables(results, configurations, summary),
        *comparison_tables(results, summary, nsamples),
    ]
    figures = pictures(summary, costs(results), estimates)
    made: dict[str, bytes] = {}
    for table in tables:
        made[f"tables/{table.name}.md"] = to_markdown(table).encode()
        made[f"tables/{table.name}.tex"] = to_latex(table).encode()
        made[f"tables/{table.name}.html"] = to_html(table).encode()
    for name, picture in figures.items():
        made[f"figures/{name}.svg"] = picture.svg
        made[f"figures/{name}.png"] = picture.png
    made["evaluation.html"] = _page(summary, tables, figures).encode()
    return made


def _page(
    summary: Summary, tables: Sequence[RenderedTable], figures: Mapping[str, Picture]
) -> str:
    return page(
        _title(summary),
        LEAD,
        _headline(summary),
        [
            (anchor, heading, [t for t in tables if re.match(pattern, t.name)])
            for anchor, heading, pattern in _SECTIONS
        ],
        figures,
        published.MISPRINTS,
    )


def page(
    title: str,
    lead: str,
    headline: Sequence[tuple[str, str]],
    sections: Sequence[tuple[str, str, Sequence[RenderedTable]]],
    figures: Mapping[str, Picture],
    misprints: Sequence[str] = (),
) -> str:
    """A page of tables and figures.

    Parameters
    ----------
    title, lead
        Its heading and the sentence below.
    headline
        What is counted, and the count.
    sections
        Anchor, heading and tables; those without a table are left out.
    figures
        Pictures by name.
    misprints
        Sentences on the paper's figures; none: no such section.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("xnq_dist.evaluation"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filled = [
        # Our own renderer has escaped every text of these.
        (f"section-{anchor}", heading, [Markup(to_html(t)) for t in tables])  # noqa: S704
        for anchor, heading, tables in sections
        if tables
    ]
    return environment.get_template("evaluation.html.j2").render(
        title=title,
        lead=lead,
        headline=headline,
        sections=filled,
        figures=[
            {
                "svg": Markup(picture.svg.decode()),  # noqa: S704 - escaped by ElementTree
                "caption": _caption(name, picture),
                "width": _width(picture),
            }
            for name, picture in figures.items()
        ],
        misprints=misprints,
    )


def _title(summary: Summary) -> str:
    names = [plain(shown(name), 40) for name in summary.datasets]
    if not names:
        return "Evaluation"
    if len(names) > 4:
        return f"Evaluation on {len(names)} data sets"
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
    return f"Evaluation on {listed}"


def _headline(summary: Summary) -> list[tuple[str, str]]:
    folds = {(c.dataset, c.fold) for c in summary.choices}
    per = [len([f for d, f in folds if d == name]) for name in summary.datasets]
    return [
        ("data sets" if len(per) != 1 else "data set", str(len(per))),
        (
            "methods" if len(summary.methods) != 1 else "method",
            str(len(summary.methods)),
        ),
        ("folds a data set", span(per) if per else "0"),
        (
            "configurations compared by validation, in all folds",
            f"{sum(c.compared for c in summary.choices):,}",
        ),
    ]


def _caption(name: str, picture: Picture) -> str:
    if name.startswith("diagonal"):
        return (
            f"{picture.title}. Line: mean over samples and folds; band: one standard "
            "deviation; dashed: where estimates should lie. Each method with the "
            "quantifier that validation chose (how often over folds, if several)."
        )
    if name == "error-time":
        return (
            f"{picture.title}; bars: one standard deviation over folds. Methods with "
            f"an AE above {AE_LIMIT} are named, not drawn."
        )
    return f"{picture.title}; bands: one standard deviation over folds."


def _width(picture: Picture) -> int:
    """Width on the page in rem, so that letters have one size in all plots."""
    box = re.search(rb'viewBox="0 0 ([0-9.]+)', picture.svg)
    return round(float(box.group(1)) / 72 * 6.2) if box else 60
