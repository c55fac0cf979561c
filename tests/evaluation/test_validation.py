"""Selection uses validation only and chooses the lowest AE."""

from __future__ import annotations

from xnq_dist.evaluation.validation import Choice, ValidationErrors, choose


def figure(draw, calibration, ae, split=0, quantifier="sld"):
    return ValidationErrors(
        draw, split, quantifier, calibration, {"ae": ae, "rae": -ae}
    )


def test_the_least_error_of_each_split_and_quantifier_is_chosen():
    figures = [
        figure(0, "bcts", 0.3),
        figure(0, "none", 0.1),
        figure(1, "bcts", 0.2),
        figure(1, "none", 0.4),
        figure(1, "none", 0.05, split=1),
        figure(1, "bcts", 0.01, quantifier="cc"),
    ]
    assert set(choose(figures)) == {
        Choice(0, 0, "sld", "none", 4),
        Choice(1, 1, "sld", "none", 1),
        Choice(1, 0, "cc", "bcts", 1),
    }


def test_of_equal_ones_the_first_is_chosen():
    assert choose([figure(0, "bcts", 0.1), figure(0, "none", 0.1)]) == [
        Choice(0, 0, "sld", "bcts", 2)
    ]
