"""A process that runs the Python functions; its arguments are JSON."""

from __future__ import annotations

import json
import sys

from xnq_dist import pipeline
from xnq_dist.core.cluster import connect, open_cluster
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import XnqError
from xnq_dist.core.store import repaired
from xnq_dist.graph.tables import Sources


def _progress(stage: str):
    def tell(what: str, done: int, total: int) -> None:
        sys.stderr.write(f"{stage}: {what} {done}/{total}\n")
        sys.stderr.flush()

    return tell


def main(tables: dict[str, str], out: str, overrides: list[str]) -> None:
    """Run all stages, as in the README."""
    settings = load_settings(overrides=overrides)
    sources = Sources(**tables)
    with pipeline.open_run(out, sources) as run:

        def stages() -> None:
            pipeline.prepare(run, sources, settings, _progress("graph"))
            with (
                open_cluster(settings.cluster) as connection,
                connect(connection, settings.cluster.timeout) as client,
            ):
                pipeline.embed(run, settings, client, _progress("embed"))
                pipeline.fit_readout(run, settings, client, _progress("readout"))
                pipeline.posteriors(run, settings, client, _progress("posteriors"))
                pipeline.quantify(run, sources, settings, client, _progress("quantify"))
            pipeline.publish(run, settings)

        repaired(stages)


if __name__ == "__main__":
    try:
        main(**json.loads(sys.argv[1]))
    except XnqError as error:
        sys.stderr.write(f"xnq-dist: {error}\n")
        sys.exit(error.exit_code)
