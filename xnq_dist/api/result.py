"""Results of a run as tables in memory."""

from __future__ import annotations

import shutil
import weakref
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from xnq_dist.core.config import recorded_settings
from xnq_dist.core.errors import RunDirectoryError
from xnq_dist.core.run_record import RunRecord
from xnq_dist.core.store import RunDirectory, read_published
from xnq_dist.graph.profile.findings import Finding
from xnq_dist.report.page_data import Page
from xnq_dist.report.sections import row
from xnq_dist.steps.contrast import contrast
from xnq_dist.steps.results import Results

__all__ = ["PrevalenceResult"]

ROWS = 10
"""Communities in the table of a notebook."""


class PrevalenceResult:
    """Estimates of a complete run; tables are read when they are first used.

    Parameters
    ----------
    run
        A run directory with published results, also one made by ``xnq-dist run``.
    folder
        Temporary folder to delete together with this object; None: nothing is deleted.
    """

    def __init__(self, run: str | Path, folder: str | None = None) -> None:
        self.run = str(run)
        """The run directory; ``xnq-dist`` commands take it."""
        self._version = read_published(run)
        self.report = str(Path(self.run, "report.html"))
        """Path of the report page."""
        verdict = self._version.manifest.facts.get("verdict", {})
        self.verdict: list[str] = list(verdict.get("lines", ()))
        """Sentences on the result: what it shows, how sure it is, what to do next."""
        if folder is not None:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    @property
    def _directory(self) -> RunDirectory:
        """The run directory; an error if another run has published there since."""
        run = RunDirectory(self.run)
        if run.current_id() != self._version.run_id:
            raise RunDirectoryError(
                f"{self.run} has newer results than {self._version.run_id}, which this "
                "object shows: make it again, or give each run its own out"
            )
        return run

    @cached_property
    def prevalence(self) -> pa.Table:
        """One row for each community and class."""
        return self._version.read("prevalence")

    @cached_property
    def totals(self) -> pa.Table:
        """One row for each class, for all nodes together."""
        return self._version.read("totals")

    @cached_property
    def anomalies(self) -> pa.Table | None:
        """One row for each community and class, compared with the rest; or None."""
        known = "anomalies" in self._version.tables()
        return self._version.read("anomalies") if known else None

    @cached_property
    def posteriors(self) -> pa.Table:
        """One row for each node, by node id: a column for each class, ``out_of_fold``.

        A class whose name is that of another column has the prefix ``class``.
        """
        made = self._directory.complete("posteriors")
        files = made.named("part-")
        parts = [made.where.read_table(file, "posteriors") for file in files]
        table = pa.concat_tables(parts).sort_by("node_id").combine_chunks()
        columns = {"node_id": table["node_id"]}
        taken = ("node_id", "out_of_fold")
        for place, name in enumerate(map(str, self.classes)):
            known = f"class {name}" if name in taken else name
            columns[known] = pc.list_element(table["posterior"], place)
        return pa.table({**columns, "out_of_fold": table["out_of_fold"]})

    @cached_property
    def classes(self) -> list[Any]:
        """The classes, with the type of the labels, in the order of their values."""
        return list(self._directory.complete("labels").facts["classes"])

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What looked wrong in the tables: level, code, text, table and column of each.

        Empty for estimates of `NetworkQuantifier`, which read no table again.
        """
        found = self._page.profile.get("findings", ())
        return tuple(Finding(**each) for each in found)

    def to_pandas(self) -> Any:
        """`prevalence` as a pandas DataFrame; `totals` and others have this, too."""
        return self.prevalence.to_pandas()

    def contrast(self, first: Any, second: Any) -> pa.Table:
        """Differences between two communities, one row per class.

        Parameters
        ----------
        first, second
            Names of the communities.

        Returns
        -------
        pyarrow.Table
            ``class_name``, the shares ``first`` and ``second``, their ``difference``
            with ``se``, the interval ``lower`` and ``upper``, and ``pvalue``.

        Raises
        ------
        RunDirectoryError
            When another run has published in the run directory since.
        """
        return contrast(self._directory.location, first, second)

    @cached_property
    def _page(self) -> Page:
        """The estimates as the report page arranges them."""
        run = self._directory
        settings = recorded_settings(RunRecord.read(run).settings)
        # A copy of a manifest is pickled whole, not as a reference to its file.
        stages = {"labels": replace(run.complete("labels"))}
        return Page(Results({"prevalence": self.prevalence}, settings, run, stages))

    def __repr__(self) -> str:
        page = self._page
        communities = page.naming.some_communities(len(page.view.names))
        first = f"PrevalenceResult: {communities}, {len(self.classes)} classes"
        return "\n".join([f"{first} ({self.run})", *self.verdict])

    def _repr_html_(self) -> str:
        """The verdict, the first communities and a link to the page, for notebooks."""
        page, view = self._page, self._page.view
        shown = [at for at in view.ranked.tolist() if not view.suppressed[at]][:ROWS]
        return page.render(
            "notebook.html.j2",
            lines=self.verdict,
            rows=[row(page, at) for at in shown],
            link=Path(self.report).absolute().as_uri(),
        )

    def __getstate__(self) -> dict[str, Any]:
        # The run directory may be gone where the result is read: take everything along.
        tables = ("prevalence", "totals", "anomalies", "posteriors")
        for name in (*tables, "classes", "findings"):
            getattr(self, name)
        version = replace(self._version, manifest=replace(self._version.manifest))
        return self.__dict__ | {"_version": version}
