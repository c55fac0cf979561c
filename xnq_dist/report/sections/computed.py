"""Section on the method, its assumptions and where the estimates can be wrong."""

from __future__ import annotations

from xnq_dist.core.method_records import method_of
from xnq_dist.core.pictures import plain
from xnq_dist.core.quantifiers import record_of
from xnq_dist.core.records import PartRecord
from xnq_dist.report.page_facts import PageFacts

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="computed", title="What was computed", rank=10),)


def body(facts: PageFacts) -> str:
    """The method, the quantifier and the meaning of the numbers."""
    name = facts.settings.quantifier
    return facts.render(
        TEMPLATE,
        method=method_of(facts.settings.method),
        quantifier=name,
        quantifier_text=record_of(name).text,
        source=plain(str(facts.of("quantify").get("source", "")), 120),
        intervals=facts.view.has_intervals,
    )


TEMPLATE = """\
<p>An untrained graph reservoir computed an embedding of every node from its features and those of its wider
neighbourhood. {{ method.report }} (<code>{{ method.name }}</code>) and gave posteriors: the probability of each class for each
node, calibrated (<code>{{ settings.readout.calibration }}</code>). For calibration, the posterior of a labelled node was computed without its label. The class proportions of each community were then estimated from the
posteriors of its members.</p>
{% if quantifier_text %}<p><strong>{{ quantifier }}</strong>: {{ quantifier_text }}</p>{% endif %}
{% if settings.labelled == "count" %}
<p>Prevalence is the share among all members of a community: known labels are counted, and only the other members (column
<em>estimated</em>) are estimated.</p>
{% else %}
<p>Prevalence is the share among the unlabelled members only (column <em>estimated</em>); known labels are not counted.</p>
{% endif %}
{% if source %}<p>Communities: {{ source }}.</p>{% endif %}
{% if intervals %}
{% if quantifier == "auto" %}
<p>Each interval should contain the community's true proportion with the confidence level set (<code>intervals.level</code>). The
column <em>quality</em> rates whether an estimate can be published, by the number of members and by the width of its interval
(settings <code>quality</code>). To compare two communities, use <code>xnq-dist contrast</code>.</p>
{% else %}
<p>Each interval should contain the community's true proportion with the confidence level set (<code>intervals.level</code>): members and
labelled nodes were resampled {{ settings.intervals.resamples }} times. The interval covers sampling error only; it does not cover the error when the
quantifier's assumption is wrong.</p>
{% endif %}
{% if settings.intervals.seed_runs %}
<p>Every interval includes the variance between this run and {{ settings.intervals.seed_runs | length }} with another reservoir
(<code>seed</code>).</p>
{% endif %}
{% else %}
<p>No intervals were computed. The estimate of a small community can have a large error: the dashed curves in the plot
against size show the size of chance errors.</p>
{% endif %}
{% if quantifier == "auto" %}
<div class="note" role="note">
{% if settings.memberships.drawn == "by_class" %}
<p><strong>Where this can be wrong.</strong> <code>memberships.drawn=by_class</code> declares that communities are samples drawn by
class, and SLD is used. If anything other than the class decided who is a member, errors can be large: set it to
<code>unknown</code>.</p>
{% else %}
<p><strong>Where this can be wrong.</strong> The estimate of a community without labels uses only the features and links
of its members. Anything else that is particular to it stays unknown, so its interval is wider. If communities are samples drawn by class, set
<code>memberships.drawn=by_class</code>. Flagged communities have larger expected errors than others: label some of
their members.</p>
{% endif %}
</div>
{% elif quantifier == "sld" %}
<div class="note" role="note">
<p><strong>Where this can be wrong.</strong> SLD assumes that a community differs from the labelled nodes in its class
<em>proportions</em> only. In real communities features and links often differ too, and then SLD can have large errors. On the
real communities of nine graph tasks, with 60&nbsp;% of the nodes labelled, its mean absolute error was .214, against .060
for the plain mean posterior. <code>--set quantifier=auto</code> checks the assumption.</p>
</div>
{% elif quantifier not in ("cc", "pcc") %}
<div class="note" role="note">
<p><strong>Where this can be wrong.</strong> This correction assumes that a community differs from the labelled nodes in its
class <em>proportions</em> only. In real communities features and links often differ too. Compare with
<code>--set quantifier=auto</code> before you rely on a number.</p>
</div>
{% else %}
<div class="note" role="note">
<p><strong>Where this can be wrong.</strong> Without a correction, estimates are biased towards the class proportions of the labelled
nodes: a community that differs strongly from them appears less different than it is.</p>
</div>
{% endif %}
"""
