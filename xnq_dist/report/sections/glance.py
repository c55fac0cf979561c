"""Section with the plots."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.records import PartRecord
from xnq_dist.report.funnel import MAX_DOTS
from xnq_dist.report.page_facts import PageFacts
from xnq_dist.report.plots import DOTS

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="glance", title="At a glance", rank=20),)


def body(facts: PageFacts) -> str:
    """Every plot with its caption."""
    if not facts.figures:
        return ""
    total = len(facts.view.names)
    return facts.render(
        TEMPLATE,
        figures=facts.figures,
        hexagons=total > MAX_DOTS,
        dots=min(DOTS, total),
        communities=total,
        intervals=facts.view.has_intervals,
        anomalies=facts.anomalies is not None,
        flagged=bool(np.any(facts.view.flagged)),
    )


TEMPLATE = """\
<div class="plots">
{% if "top" in figures %}
<figure class="wide">{{ figures.top }}<figcaption>Highest prevalence of {{ last }}: {{ dots }} of {{ communities | count }} communities.{% if intervals %} Bars: intervals.{% endif %}</figcaption></figure>
{% endif %}
{% if "size" in figures %}
<figure class="wide">{{ figures.size }}<figcaption>Prevalence of {{ last }} against community size.{% if hexagons %} There are too many communities for dots: each hexagon counts those inside it, and marks that would cover each other are drawn once.{% endif %} Line:
{% if settings.anomalies.reference == "rest" %}the mean over all memberships, without communities that differ strongly{% else %}the share set{% endif %}. If all communities were random samples from the same population, 95 % of them would lie in the band and 99.8 % between the dashed curves{% if intervals %}; both include the
typical error of estimates at that size{% endif %}.{% if anomalies %} Triangles: beyond chance, tested with each community's labels and posteriors.{% endif %}{% if flagged %} Diamonds: large expected error.{% endif %}</figcaption></figure>
{% endif %}
{% if "histogram" in figures %}
<figure>{{ figures.histogram }}<figcaption>Number of communities by prevalence.</figcaption></figure>
{% endif %}
{% if "reliability" in figures %}
<figure>{{ figures.reliability }}<figcaption>Calibration: observed share of {{ last }} among labelled nodes, by predicted out-of-fold probability. Perfect calibration is on the diagonal; bars: 95 % intervals.</figcaption></figure>
{% endif %}
{% if "partitions" in figures %}
<figure>{{ figures.partitions }}<figcaption>Partitioning of the graph: nodes that each partition computes, and copies of other nodes that it receives every superstep.</figcaption></figure>
{% endif %}
</div>
"""
