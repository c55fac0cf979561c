"""Opening the communities of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from xnq_dist.core.settings import Settings
from xnq_dist.core.store import Manifest, RunDirectory
from xnq_dist.graph.ids import NodeIds
from xnq_dist.graph.scratch import scratch_folder
from xnq_dist.graph.tables import Sources, open_table
from xnq_dist.quantify.communities import (
    Memberships,
    from_assignment,
    from_column,
    from_memberships,
)

__all__ = ["open_memberships"]


@contextmanager
def open_memberships(
    run: RunDirectory,
    graph: Manifest,
    nodes: NodeIds,
    sources: Sources,
    settings: Settings,
    source: str,
) -> Iterator[Memberships]:
    """Open the communities of a source; their members are sorted."""
    with ExitStack() as opened:
        scratch = opened.enter_context(scratch_folder(settings.scratch))
        if source == "given":
            table = open_table(
                str(sources.memberships), "memberships table", settings.input
            )
            context = from_memberships(table, nodes, settings, scratch)
        elif source == "leiden":
            from xnq_dist.groups.detection import detect

            communities = detect(run.stage("graph"), graph, settings, scratch)
            context = from_assignment(communities, settings, scratch)
        else:
            table = open_table(sources.nodes, "node table", settings.input)
            table = table.ids_as(nodes.type, settings.columns.node_id)
            column = source.removeprefix("column:")
            context = from_column(table, column, nodes, settings, scratch)
        yield opened.enter_context(context)
