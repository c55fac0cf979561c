"""The plots."""

from __future__ import annotations

import numpy as np

from xnq_dist.core.records import PartRecord
from xnq_dist.report.funnel import DRAWN_ALONE
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
        hexagons=total > DRAWN_ALONE,
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
<figure class="wide">{{ figures.size }}<figcaption>Prevalence of {{ last }} against size.{% if hexagons %} Communities are too many for single dots: each hexagon counts those inside it, and marks that would cover each other are drawn once.{% endif %} Line:
{% if settings.anomalies.reference == "rest" %}the mean over all memberships, communities that differ by far left out{% else %}the share set{% endif %}. In the band 95 %, and between the dashed curves 99.8 % of them would lie if all communities were alike: samples of that size{% if intervals %}, estimated with the error
that is typical of it{% endif %}.{% if anomalies %} Triangles: beyond chance (each community's own labels and posteriors decide).{% endif %}{% if flagged %} Diamonds: the expected error is large.{% endif %}</figcaption></figure>
{% endif %}
{% if "histogram" in figures %}
<figure>{{ figures.histogram }}<figcaption>How many communities have which prevalence.</figcaption></figure>
{% endif %}
{% if "reliability" in figures %}
<figure>{{ figures.reliability }}<figcaption>Calibration: of the labelled nodes given a probability of {{ last }} (out of fold), how many have it. On the diagonal probabilities mean what they say; bars: 95 % of chance.</figcaption></figure>
{% endif %}
{% if "partitions" in figures %}
<figure>{{ figures.partitions }}<figcaption>The cut of the graph: nodes that each partition computes, and copies of others that it receives every superstep.</figcaption></figure>
{% endif %}
</div>
"""
