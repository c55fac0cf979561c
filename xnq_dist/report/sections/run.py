"""Section on the run: times, settings and package versions."""

from __future__ import annotations

import yaml

from xnq_dist.core.inputs import ELSEWHERE
from xnq_dist.core.redaction import redacted
from xnq_dist.report.page_data import Page

__all__ = ["body"]


def body(facts: Page) -> str:
    """Stages with their times; settings and versions are folded."""
    *_, last = facts.stages.values()
    settings = facts.settings.model_dump(mode="json", exclude=ELSEWHERE)
    return facts.render(
        "run.html.j2",
        texts=[
            (title, yaml.safe_dump(redacted(values), sort_keys=False))
            for title, values in (
                (f"Settings (seed {facts.settings.seed})", settings),
                ("Versions", dict(last.versions)),
            )
        ],
    )
