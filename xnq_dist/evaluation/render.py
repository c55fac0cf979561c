"""Output of an evaluation: tables, plots and one self-contained page."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from xnq_dist.core.plain_text import plain
from xnq_dist.evaluation.bayes import NSAMPLES, comparison_table
from xnq_dist.evaluation.figures import diagonals
from xnq_dist.evaluation.names import shown, span
from xnq_dist.evaluation.paper import paper_tables
from xnq_dist.evaluation.rendered_table import RenderedTable, to_markdown
from xnq_dist.evaluation.summary import Summary, summarise

__all__ = ["outputs", "page", "table_files"]

LEAD = (
    "Errors of estimated class proportions on samples of test nodes with known "
    "proportions."
)
SECTIONS = (
    ("errors", "Errors", r"(ae|rae)-"),
    ("ablation", "Ablation", r"ablation-"),
    ("comparison", "Bayesian comparison", r"comparison"),
    ("labels", "Fewer labels", r"label-shares"),
    ("time", "Time", r"cost"),
)
"""Anchor, heading and pattern that names of the section's tables begin with."""
CAPTION = (
    "{}. Line: mean over samples and folds; band: one standard deviation; dashed: "
    "estimate equal to truth. Each method uses the quantifier that validation chose "
    "(with the number of folds, if several)."
)


def outputs(
    results: pa.Table, estimates: pa.Table, nsamples: int = NSAMPLES
) -> dict[str, bytes]:
    """Contents of ``tables/*.md``, ``figures/*.svg`` and the page, by file name.

    The same tables give the same bytes.

    Parameters
    ----------
    results, estimates
        Tables with schemas of these names; several data sets may be concatenated.
    nsamples
        Number of draws of each Bayesian comparison.

    Raises
    ------
    StageError
        When validation cannot choose a quantifier from the results (`summary.choose`).
    """
    summary = summarise(results, estimates)
    tables = [
        *paper_tables(results, summary),
        comparison_table(results, summary, nsamples),
    ]
    figures = diagonals(summary, estimates)
    made = table_files(tables)
    made |= {f"figures/{name}.svg": svg for name, (_, svg) in figures.items()}
    names = [plain(shown(name), 40) for name in summary.datasets]
    title = f"Evaluation on {', '.join(names)}" if names else "Evaluation"
    if len(names) > 4:
        title = f"Evaluation on {len(names)} data sets"
    html = page(title, LEAD, list(_headline(summary)), SECTIONS, tables, figures)
    return made | {"evaluation.html": html}


def table_files(tables: Sequence[RenderedTable]) -> dict[str, bytes]:
    """Every table as Markdown, by file name."""
    return {f"tables/{one.name}.md": to_markdown(one).encode() for one in tables}


def page(
    title: str,
    lead: str,
    headline: Sequence[tuple[str, str]],
    sections: Sequence[tuple[str, str, str]],
    tables: Sequence[RenderedTable],
    figures: Mapping[str, tuple[str, bytes]],
) -> bytes:
    """Render a page of tables and figures as HTML.

    Parameters
    ----------
    title, lead
        Heading of the page and the sentence below.
    headline
        Pairs of a description and a count.
    sections
        Anchor, heading and pattern that the names of its tables match; sections without
        a table are left out.
    tables, figures
        Contents of the page.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("xnq_dist.evaluation"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    filled = [
        (f"section-{anchor}", heading, [t for t in tables if re.match(pattern, t.name)])
        for anchor, heading, pattern in sections
    ]
    html = environment.get_template("evaluation.html.j2").render(
        title=title,
        lead=lead,
        headline=headline,
        sections=[section for section in filled if section[2]],
        figures=[
            {
                "source": f"data:image/svg+xml;base64,{b64encode(svg).decode()}",
                "title": title,
                "caption": CAPTION.format(title),
            }
            for title, svg in figures.values()
        ],
    )
    return html.encode()


def _headline(summary: Summary) -> Iterator[tuple[str, str]]:
    folds = {(c.dataset, c.fold) for c in summary.choices}
    per = [len([f for d, f in folds if d == name]) for name in summary.datasets]
    yield "data sets", str(len(per))
    yield "methods", str(len(summary.methods))
    yield "folds per data set", span(per) if per else "0"
    compared = sum(c.compared for c in summary.choices)
    yield "configurations compared by validation, in all folds", f"{compared:,}"
