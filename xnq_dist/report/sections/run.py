"""Section on the run: times, settings, facts and package versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xnq_dist.core.inputs import ELSEWHERE
from xnq_dist.core.plain_text import plain
from xnq_dist.core.store import Manifest
from xnq_dist.report.page_data import Page

__all__ = ["body"]


def body(facts: Page) -> str:
    """Stages with their times; settings, facts and versions are folded."""
    stages = facts.results.stages
    return facts.render(
        "run",
        stages=stages,
        seconds=sum(stage.seconds for stage in stages.values()),
        facts=[(name, _flat(_shown(stage.facts))) for name, stage in stages.items()],
        values=_flat(facts.settings.model_dump(exclude=ELSEWHERE)),
        versions=_versions(stages),
    )


def _shown(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts without numbers of labels, in each class or in bins, which can be small.

    The section on the inputs, and the plot of the calibration, show what is not.
    """
    counts = ("class_counts", "reliability")
    return {name: value for name, value in facts.items() if name not in counts}


def _versions(stages: Mapping[str, Manifest]) -> list[tuple[str, str]]:
    """Packages and their versions; several if stages ran with different versions."""
    versions: dict[str, list[str]] = {}
    for stage in stages.values():
        for package, version in stage.versions.items():
            seen = versions.setdefault(package, [])
            if version not in seen:
                seen.append(version)
    return [(package, ", ".join(seen)) for package, seen in sorted(versions.items())]


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as pairs of dotted key and short text."""
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((plain(f"{prefix}{key}", 80), _text(value)))
    return pairs


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(item) for item in value[:12])
        more = f", … ({len(value):,} in all)" if len(value) > 12 else ""
        return plain(shown + more, 400)
    if isinstance(value, Mapping):
        return plain(", ".join(f"{k}: {_text(v)}" for k, v in value.items()), 400)
    return plain(str(value), 400)
