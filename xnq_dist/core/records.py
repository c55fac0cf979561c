"""Records of all methods and quantifiers: what the rest of the package knows of them.

Settings, fingerprints, help, plan, report and evaluation read the records. Modules are
imported on use, because some contain kernels, whose compiler takes half a second to
import.

A method is one record here and one module with three functions: ``embed(run, settings,
client, progress)`` makes the stage ``embeddings`` and returns its manifest;
``fit(work)`` fits the readout (`readout.stage.ReadoutWork`) and returns its files and
facts; ``write_posteriors``, a task, writes a partition's posteriors with it.

A quantifier is one record here and one module with a function ``make(name, settings)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

__all__ = [
    "INPUT_SCALE",
    "METHODS",
    "QUANTIFIERS",
    "RECURRENT_SCALES",
    "MethodRecord",
    "PartRecord",
    "Record",
    "Registry",
]


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """What the rest of the package knows about a module."""

    name: str
    """Name in the settings."""
    text: str = ""
    """Description in reports and help."""
    module: str
    """Name of the module."""


R = TypeVar("R", bound=PartRecord)


class Registry(dict[str, R]):
    """All modules of one kind by name, in the order of lists; `what` is for messages.

    Raises
    ------
    ValueError
        For a name that has no record; the message has the existing ones.
    """

    def __init__(self, what: str, records: Iterable[R]) -> None:
        super().__init__((record.name, record) for record in records)
        self.what = what

    def __missing__(self, name: str) -> R:
        raise ValueError(
            f"there is no {self.what} {name!r}: choose one of {', '.join(self)}"
        )

    def module_of(self, name: str) -> Any:
        """Import and return the module of the record with this name."""
        return import_module(self[name].module)

    def check(self, name: str) -> str:
        """Return a setting's value; raise if no record has this name."""
        return self[name].name

    def offer(self, schema: dict[str, Any]) -> None:
        """Add the setting's values and their descriptions to its JSON schema."""
        schema["enum"] = list(self)
        schema["description"] += "".join(
            f"; {name}: {record.text}" for name, record in self.items()
        )


RECURRENT_SCALES = (1.0, 3.0, 8.0, 20.0)
"""Recurrent scales of the reservoirs that xnq+ uses together, from contractive to
chaotic: with all of them it needs no search."""
INPUT_SCALE = 0.3
"""Input scale of xnq+."""


@dataclass(frozen=True, kw_only=True)
class MethodRecord(PartRecord):
    """One method: an embedding and a readout."""

    title: str
    """Name in results of comparisons."""
    report: str
    """What the readout does, in the report after "Every node has a state."."""
    searches: bool = False
    """Whether the stage ``select`` searches the reservoir's scales."""
    second_stage: bool = False
    """Whether the readout has a second stage of label features, which takes scores and
    inclusion weights of labels, and needs three folds. Embeddings then have further
    blocks (features of neighbours, spectrum), and labels of all roles are pooled, each
    held out in turn."""


METHODS = Registry(
    "method",
    (
        MethodRecord(
            name="xnq",
            title="XNQ",
            text="reservoir and logistic readout, as in the paper",
            report=(
                "A logistic readout, fitted on the labelled nodes, turned states into "
                "scores"
            ),
            searches=True,
            module="xnq_dist.methods.xnq",
        ),
        MethodRecord(
            name="xnq+",
            title="XNQ+",
            text=(
                "also labels of neighbours and a second stage (all labels are "
                "cross-fitted)"
            ),
            report=(
                "A logistic readout, fitted on the labelled nodes, turned states into "
                "scores; a second model combined them with the labels and scores of "
                "neighbouring nodes"
            ),
            second_stage=True,
            module="xnq_dist.methods.xnq_plus",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Record(PartRecord):
    """One quantifier."""

    two_classes: bool = False
    """Whether it is defined for two classes only."""
    neighbours: bool = False
    """Whether it needs the posteriors of nodes' neighbours."""
    votes: bool = False
    """Whether it uses only the most likely class of each posterior."""
    graph: bool = False
    """Whether it needs the graph itself, beyond posteriors and neighbours."""

    def defined_for(self, n_classes: int) -> bool:
        """Whether it is defined for this number of classes."""
        return n_classes == 2 or not self.two_classes


RECORDS = (
    Record(
        name="auto",
        text=(
            "Known labels are counted; the unlabelled members add the mean of their "
            "posteriors, moved by the community's labelled members as far as all "
            "labels show that communities differ by class. Intervals include four "
            "errors: the chance of each unlabelled node's class, that of the move, the "
            "bias that posteriors share within a group of the graph (learnt from the "
            "labelled nodes), and the bias that all posteriors share."
        ),
        graph=True,
        module="xnq_dist.quantify.default.auto",
    ),
    Record(
        name="cc",
        text="Classify and count: the share of nodes whose most probable class it is.",
        votes=True,
        module="xnq_dist.quantify.classic.counts",
    ),
    Record(
        name="acc",
        text="Adjusted count: votes corrected by the readout's error rates.",
        votes=True,
        module="xnq_dist.quantify.classic.counts",
    ),
    Record(
        name="pcc",
        text="Mean posterior (probabilistic classify and count).",
        module="xnq_dist.quantify.classic.counts",
    ),
    Record(
        name="pacc",
        text=(
            "Adjusted mean posterior: mean posteriors corrected by the readout's mean "
            "posteriors within each class."
        ),
        module="xnq_dist.quantify.classic.counts",
    ),
    Record(
        name="hdy",
        text=(
            "Histograms of the posterior: the mixture of the two classes' histograms "
            "that is nearest to the community's (Hellinger distance), and the median "
            "over 10, 20, ..., 110 bins."
        ),
        two_classes=True,
        module="xnq_dist.quantify.classic.histograms",
    ),
    Record(
        name="dys",
        text=(
            "Histograms of the posterior: the mixture of the two classes' histograms "
            "that is nearest to the community's (Topsoe distance)."
        ),
        two_classes=True,
        module="xnq_dist.quantify.classic.histograms",
    ),
    Record(
        name="dmy",
        text=(
            "Histograms of every class's posterior: the mixture of the classes' "
            "histograms that is nearest to the community's (mean Topsoe distance)."
        ),
        module="xnq_dist.quantify.classic.histograms",
    ),
    Record(
        name="kdey_ml",
        text=(
            "Kernel densities of the posteriors of each class's labelled nodes: the "
            "mixture of them that makes the community's posteriors most likely."
        ),
        module="xnq_dist.quantify.classic.kdey_ml",
    ),
    Record(
        name="sld",
        text=(
            "Expectation maximisation after Saerens, Latinne and Decaestecker (SLD): "
            "starting from the class proportions of the labelled nodes, posteriors "
            "are re-weighted and averaged in turns until the proportions no longer "
            "change."
        ),
        module="xnq_dist.quantify.classic.sld",
    ),
    Record(
        name="nacc",
        text=(
            "Neighbourhood-aware adjusted count (NACC): votes of a node and of most "
            "of its neighbours, taken together, corrected by how often each pair was "
            "seen at the labelled nodes of each class."
        ),
        neighbours=True,
        module="xnq_dist.quantify.classic.counts",
    ),
    Record(
        name="npacc",
        text=(
            "Neighbourhood-aware adjusted mean posterior: products of a node's "
            "posterior and its neighbours' mean posterior, corrected by their means "
            "at the labelled nodes of each class."
        ),
        neighbours=True,
        module="xnq_dist.quantify.classic.counts",
    ),
)
QUANTIFIERS = Registry("quantifier", RECORDS)
