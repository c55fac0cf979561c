"""A quantifier is one module with one record, which everything else reads."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import small_settings
from tests.quantify.test_stage import answered, draw_memberships, of
from tests.report.fake_run import prevalence_table
from tests.report.test_page import made as made_page
from tests.report.test_page import read
from tests.test_extending import ADDED, add
from xnq_dist.app.settings_help import settings_help
from xnq_dist.core.config import load_settings
from xnq_dist.core.errors import InputError, SettingsError
from xnq_dist.core.records import QUANTIFIERS, Record
from xnq_dist.core.settings import Settings
from xnq_dist.evaluation.scoring import quantifiers_for
from xnq_dist.quantify.stage import quantify

__all__ = ["add"]

MODULE = '''
"""Half of SLD's answer and half of the mean posterior's."""

from dataclasses import dataclass, replace

from xnq_dist.quantify.interface import Quantifier
from xnq_dist.quantify.interface import make_quantifier

@dataclass(frozen=True)
class Halfway(Quantifier):
    both: tuple
    name: str = "halfway"

    def estimate(self, batch, nodes):
        one, two = (q.estimate(batch, nodes) for q in self.both)
        return replace(one, prevalence=(one.prevalence + two.prevalence) / 2)


def make(name, settings):
    return Halfway(tuple(make_quantifier(q, settings) for q in ("sld", "pcc")))
'''


@pytest.fixture
def halfway(add):
    """A quantifier in a folder of its own."""
    record = Record(
        name="halfway",
        text="Halfway between SLD and the mean posterior.",
        two_classes=True,
        module=ADDED,
    )
    add(QUANTIFIERS, record, MODULE)
    return "halfway"


def test_a_new_module_is_known_to_settings_and_help(halfway):
    assert load_settings(overrides=["quantifier=halfway"]).quantifier == halfway
    text = " ".join(settings_help().split())
    assert "npacc, halfway" in text
    schema = Settings.model_json_schema()["properties"]["quantifier"]
    assert halfway in schema["enum"]


def test_a_new_module_is_evaluated_and_reported(halfway):
    assert halfway in quantifiers_for(None, 2, crisp=False)
    assert halfway not in quantifiers_for(None, 3, crisp=False)
    with pytest.raises(InputError, match="'halfway' is defined for two classes"):
        quantifiers_for([halfway], 3, crisp=False)
    settings = load_settings(overrides=["quantifier=halfway"])
    page = read(made_page(prevalence_table(["a"]), settings)).text
    assert "Halfway between SLD and the mean posterior." in " ".join(page.split())


def test_a_new_module_estimates_a_run_with_intervals(halfway, made, client, tmp_path):
    path, _ = draw_memberships(tmp_path, 3)

    def manifest_of(name, *more):
        settings = small_settings(f"quantifier={name}", "intervals.resamples=20", *more)
        return quantify(made.run, of(made, memberships=path), settings, client)

    tables, manifests = {}, {}
    for name in ("sld", "pcc", halfway):
        manifests[name] = manifest_of(name)
        tables[name] = answered(made.run, manifests[name])
    both = [np.array(tables[q]["prevalence"]) for q in ("sld", "pcc")]
    found = tables[halfway]
    np.testing.assert_allclose(found["prevalence"], np.mean(both, axis=0), atol=1e-9)
    assert set(found["method"].to_pylist()) == {halfway}
    assert (np.array(found["upper"]) > np.array(found["lower"])).any()


def test_an_unknown_quantifier_is_refused_with_the_list_of_all():
    names = ", ".join(QUANTIFIERS)
    with pytest.raises(
        SettingsError, match=f"there is no quantifier 'mine': choose one of {names}"
    ):
        load_settings(overrides=["quantifier=mine"])
    with pytest.raises(
        ValueError, match=f"no quantifier 'mine': choose one of {names}"
    ):
        QUANTIFIERS["mine"]
