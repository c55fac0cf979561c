"""Events of a publication: what is newly anomalous, and what quality fell."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.report.fake_run import prevalence_table, write_fake_run
from xnq_dist.core.config import load_settings
from xnq_dist.core.store import RunDirectory
from xnq_dist.monitor.news import news
from xnq_dist.steps.publish import publish as report

NAMES = ["a", "b", "c", "d"]


def publish(folder: Path, night: str, **columns: list[object]) -> RunDirectory:
    """Publish a run in which some columns have the values given, one per community."""
    run = RunDirectory(folder)
    run.reuse("quantify", {"tables": night})
    table = prevalence_table(NAMES, intervals=True)
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        both = [value for value in values for _ in ("person", "bot")]
        if name == "prevalence":
            both = [share for value in values for share in (1 - value, value)]
        table = table.set_column(at, name, pa.array(both, table.schema.field(at).type))
    settings = load_settings(overrides=["quantifier=auto"])
    report(write_fake_run(folder, [table]), settings)
    return run


EVEN = [0.3, 0.3, 0.3, 0.3]
SIZES = {"n_nodes": [2000] * 4, "n_labelled": [400] * 4, "n_estimated": [1600] * 4}


def test_a_first_publication_is_one_event(tmp_path):
    run = publish(tmp_path, "first", prevalence=EVEN, **SIZES)
    (event,) = news(run)
    assert event.name == "xnq.run.published"
    assert event.payload["report"].endswith("report.html")


def test_what_became_anomalous_is_told_once(tmp_path):
    publish(tmp_path, "first", prevalence=EVEN, **SIZES)
    odd = [0.3, 0.3, 0.9, 0.3]
    run = publish(tmp_path, "second", prevalence=odd, **SIZES)
    of_run, *others = news(run)
    told = {(e.name, e.payload["community"], e.payload["class"]) for e in others}
    assert ("xnq.community.anomalous", "c", "bot") in told
    assert of_run.payload["anomalous"] == len(others)
    assert {e.resource for e in others if e.payload["community"] == "c"} == {
        "xnq.community.c"
    }
    later = [0.3, 0.31, 0.9, 0.3]
    again = publish(tmp_path, "third", prevalence=later, **SIZES)
    assert [event.name for event in news(again)] == ["xnq.run.published"]


def test_a_fall_from_publishable_is_told(tmp_path):
    good = {"prevalence": EVEN, **SIZES}
    publish(tmp_path, "first", quality=["publishable"] * 3 + ["caution"], **good)
    now = ["publishable", "not publishable", "suppressed", "not publishable"]
    run = publish(tmp_path, "second", quality=now, **good)
    _, *others = news(run)
    assert [(e.name, e.payload["community"]) for e in others] == [
        ("xnq.community.quality-fell", "b")
    ] * 2
    assert others[0].payload["quality"] == "not publishable"


def test_events_leave_out_suppressed_communities(tmp_path):
    publish(tmp_path, "first", prevalence=EVEN, **SIZES)
    odd = {"prevalence": [0.3, 0.3, 0.9, 0.3], **SIZES}
    hidden = ["caution", "caution", "suppressed", "caution"]
    run = publish(tmp_path, "second", quality=hidden, **odd)
    assert [event.name for event in news(run)] == ["xnq.run.published"]


def test_events_of_a_kind_are_limited_and_counted(tmp_path):
    publish(tmp_path, "first", prevalence=EVEN, **SIZES)
    odd = [0.3, 0.3, 0.9, 0.3]
    run = publish(tmp_path, "second", prevalence=odd, **SIZES)
    of_run, *others = news(run, shown=1)
    assert len(others) == 1
    assert of_run.payload["anomalous"] == 2
    assert others[0].payload["community"] == "c"
