"""How the numbers were made, and where they can be wrong."""

from __future__ import annotations

from xnq_dist.core.method_records import method_of
from xnq_dist.core.pictures import plain
from xnq_dist.core.quantifiers import record_of
from xnq_dist.core.records import PartRecord
from xnq_dist.report.page_facts import PageFacts

__all__ = ["RECORDS", "body"]

RECORDS = (PartRecord(name="computed", title="What was computed", rank=10),)


def body(facts: PageFacts) -> str:
    """The method, the quantifier and what the numbers mean."""
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
<p>An untrained graph reservoir gave every node a state that sums up its own features and those of its wider
neighbourhood. {{ method.report }} (<code>{{ method.name }}</code>) and gave posteriors: the probability of each class for each
node, calibrated (<code>{{ settings.readout.calibration }}</code>). A labelled node's own label had no part in the posterior that was used for calibration. The class proportions of each community were then estimated from the
posteriors of its members.</p>
{% if quantifier_text %}<p><strong>{{ quantifier }}</strong>: {{ quantifier_text }}</p>{% endif %}
{% if settings.labelled == "count" %}
<p>Prevalence is of all members of a community: known labels are counted as they are, and only the rest, <em>estimated</em> in the
table, is estimated.</p>
{% else %}
<p>Prevalence is of the unlabelled members only (<em>estimated</em> in the table); known labels are left out.</p>
{% endif %}
{% if source %}<p>Communities: {{ source }}.</p>{% endif %}
{% if intervals %}
{% if quantifier == "auto" %}
<p>Each interval should contain the community's true proportion with the confidence level set (<code>intervals.level</code>). The
column <em>quality</em> says whether an estimate is fit to be published: by the number of members and by the width of its interval
(settings <code>quality</code>). The difference of two communities, with its interval: <code>xnq-dist contrast</code>.</p>
{% else %}
<p>An interval is meant to hold the community's true proportion with the probability set (<code>intervals.level</code>): members and
labelled nodes were drawn anew {{ settings.intervals.resamples }} times. It holds what chance does where the quantifier's assumption is
right; an error of the assumption itself it does not hold.</p>
{% endif %}
{% if settings.intervals.seed_runs %}
<p>The variance between this run and {{ settings.intervals.seed_runs | length }} with another reservoir (<code>seed</code>) is part of
every interval.</p>
{% endif %}
{% else %}
<p>No intervals were computed. In a small community an estimate can be off by much: the dashed curves in the plot
against size show what chance alone does.</p>
{% endif %}
{% if quantifier == "auto" %}
<div class="note" role="note">
{% if settings.memberships.drawn == "by_class" %}
<p><strong>Where this can be wrong.</strong> <code>memberships.drawn=by_class</code> declares that communities are samples drawn by
class, and SLD is used. If anything but the class decided who is a member, estimates can be far off: leave the setting at
<code>unknown</code>.</p>
{% else %}
<p><strong>Where this can be wrong.</strong> Whatever a community without labels has of its own cannot be known: its estimate rests
on the features and links of its members, and its interval is wider. If communities are samples drawn by class, set
<code>memberships.drawn=by_class</code>. Estimates of flagged communities are expected to err more than those of others: label some of
their members.</p>
{% endif %}
</div>
{% elif quantifier == "sld" %}
<div class="note" role="note">
<p><strong>Where this can be wrong.</strong> SLD assumes that a community differs from the labelled nodes in its class
<em>proportions</em> only. In real communities features and links often differ too, and then SLD can be far off. On the
real communities of nine graph tasks, with 60&nbsp;% of the nodes labelled, its mean absolute error was .214, against .060
for the plain mean posterior. <code>--set quantifier=auto</code> looks for that.</p>
</div>
{% elif quantifier not in ("cc", "pcc") %}
<div class="note" role="note">
<p><strong>Where this can be wrong.</strong> This correction assumes that a community differs from the labelled nodes in its
class <em>proportions</em> only. In real communities features and links often differ too. Compare with
<code>--set quantifier=auto</code> before you rely on a number.</p>
</div>
{% else %}
<div class="note" role="note">
<p><strong>Where this can be wrong.</strong> Without a correction, estimates lean towards the class proportions of the labelled
nodes: a community that differs strongly from them looks less different than it is.</p>
</div>
{% endif %}
"""
