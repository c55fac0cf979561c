"""SLD on recalibrated posteriors (EMQ-BCTS).

References
----------
A. Alexandari, A. Kundaje, A. Shrikumar, "Maximum likelihood with bias-corrected
calibration is hard-to-beat at label shift adaptation", ICML 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from xnq_dist.core.settings import Settings
from xnq_dist.quantify.classic.members import (
    reference_rows,
    usable_members,
)
from xnq_dist.quantify.classic.sld import Sld
from xnq_dist.quantify.interface import (
    Communities,
    Estimates,
    NodeTable,
    Quantifier,
    Reference,
)
from xnq_dist.readout.calibration import FLOOR, fit_calibration

__all__ = ["SldBcts", "make"]


@dataclass(frozen=True)
class SldBcts(Sld):
    """The quantifier ``sld_bcts``: SLD after bias-corrected temperature scaling.

    The map is fitted to the reference's labels and to the logarithms of its posteriors
    as logits, whatever calibration they have; after ``readout.calibration = bcts`` on
    the same labels it is the identity, up to its weak priors.

    SLD's prior is the class proportions of the reference's labels. QuaPy's EMQ with
    ``calib="bcts", exact_train_prev=False`` uses the mean calibrated posterior of the
    same rows; with biases fitted by maximum likelihood the two are equal.
    """

    name: str = "sld_bcts"

    def estimate(
        self, batch: Communities, nodes: NodeTable, reference: Reference
    ) -> Estimates:
        """Prevalence among the unlabelled members of every community."""
        posteriors, labels = reference_rows(self.name, reference, nodes.classes)
        logits = np.log(np.maximum(posteriors, FLOOR))
        calibration = reference.learnt(
            self, lambda: fit_calibration("bcts", logits, labels)
        )
        prior = np.bincount(labels, minlength=posteriors.shape[1]) / len(labels)
        usable = usable_members(batch, nodes)
        original = usable.nodes.posteriors.astype(np.float64)
        calibrated = replace(
            usable.nodes,
            posteriors=calibration.apply(np.log(np.maximum(original, FLOOR))),
        )
        estimates = super().estimate(
            usable.sets, calibrated, replace(reference, prior=prior)
        )
        none_usable = (usable.unlabelled > 0) & (usable.sets.sizes == 0)
        estimates.prevalence[none_usable] = prior
        return estimates


def make(name: str, settings: Settings) -> Quantifier:
    """Construct the quantifier from its settings."""
    return SldBcts()
