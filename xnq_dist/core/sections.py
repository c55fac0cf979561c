"""Sections of the settings, by what a user thinks of.

Tables, labels and communities, method, results, and the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.need import check_size, parse_bytes
from xnq_dist.core.redaction import redacted

__all__ = [
    "TITLES",
    "AnomalySettings",
    "AutoSettings",
    "CheckSettings",
    "CheckpointSettings",
    "ClusterSettings",
    "Code",
    "ColumnSettings",
    "DisclosureSettings",
    "EmbeddingSettings",
    "ExchangeSettings",
    "FeatureSettings",
    "InputSettings",
    "IntervalSettings",
    "LabelSettings",
    "LeidenSettings",
    "MembershipSettings",
    "Missing",
    "QualitySettings",
    "ReadoutSettings",
    "ReportSettings",
    "ReservoirSettings",
    "RetentionSettings",
    "Section",
    "SlurmSettings",
    "Text",
    "WatchSettings",
]

Code = Literal[
    "feature-id",
    "feature-label",
    "few-matches",
    "label-case",
    "label-ids",
]
"""Findings of the profile that can be accepted."""
TITLES = {
    "nodes": "node table",
    "edges": "edge table",
    "memberships": "memberships table",
    "labels": "table of labels",
}
"""The tables' names in messages, by key."""
PRIOR_TOLERANCE = 1e-6
"""Allowed distance of the sum of labels.prior from 1."""
MAX_ROWS = 200_000
"""Maximum number of labelled rows that models are fitted to: with so few columns, more
rows barely improve them."""
VALUE_BYTES = 8
"""Bytes per value of a labelled row: float32 as gathered, and again in sorted rows."""

Size = Annotated[str | int, AfterValidator(check_size)]
"""A number of bytes, or a text such as ``2 GiB``."""
SizeOrAuto = Literal["auto"] | Size
CountOrAuto = Annotated[int, Field(ge=1)] | Literal["auto"]
Scale = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Scales = Annotated[tuple[Scale, ...], Field(min_length=1, max_length=64)]
Width = Annotated[float, Field(ge=0, le=1)]
"""Of an interval of a share."""
Line = Annotated[str, Field(pattern=r"^[^\n\r]+$")]
"""One line of a job's script."""
Name = Annotated[str, Field(pattern=r"^[^\s'\"$`;&|<>]+$")]
"""One word of a shell."""


def _as_text(value: Any) -> Any:
    # As in the tables: YAML reads 1 and null as other types.
    if isinstance(value, bool):
        return str(value)
    return json.dumps(value) if isinstance(value, int | float | None) else value


Text = Annotated[str, BeforeValidator(_as_text)]
"""A value of a column, such as the name of a class."""


class Section(BaseModel):
    """Base of all sections of the settings: frozen, without unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if faults := [*self.faults()]:
            raise ValueError("; ".join(faults))
        return self

    def faults(self) -> Iterator[str]:
        """What is wrong with these settings together, one sentence each."""
        yield from ()

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Dask logs the arguments of failed tasks: hide credentials.
        for name, value in super().__repr_args__():
            yield name, redacted(value)


class ColumnSettings(Section):
    """Names of the columns in the user's tables."""

    node_id: str = "node_id"
    """node id in the node table"""
    features: str | list[str] | None = "auto"
    """features: one fixed-size-list column, or a list of columns (numbers, booleans,
    dates, text); auto: the list column `features` if there is one, else all columns
    that no other setting names; null: use the graph alone"""
    scores: list[str] = Field([])
    """columns of the node table with another model's probabilities or scores, such as a
    vendor's; empty: there are none"""
    label: str = "label"
    """class label in the node table; a null label means unlabelled"""
    role: str = "role"
    """optional column that says what a label is used for: `train` or `calibration`"""
    label_weight: str | None = None
    """inclusion weight of a labelled node: 1 / the probability that it was chosen for
    labelling; needs labels.drawn=weighted"""
    src: str = "src"
    """source node in the edge table"""
    dst: str = "dst"
    """target node in the edge table"""
    weight: str | None = "weight"
    """optional edge weight in the edge table; null: edges have none"""
    community: str = "community"
    """community in the memberships table"""
    member: str = "node_id"
    """node id in the memberships table"""

    def faults(self) -> Iterator[str]:
        """Columns that are named twice."""
        pairs = (("src", "dst"), ("member", "community"), ("node_id", "label"))
        for first, second in pairs:
            if (name := getattr(self, first)) == getattr(self, second):
                yield (
                    f"columns.{first} and columns.{second} both name {name!r}: give "
                    "each its own column"
                )
        named = [self.node_id, self.label, self.role, self.label_weight, *self.scores]
        for name in dict.fromkeys(self.scores):
            if named.count(name) > 1:
                yield (
                    f"columns.scores names {name!r}, which columns names a second "
                    "time: give each its own column"
                )


def _character(value: Any) -> Any:
    named = {
        "tab": "\t",
        "\\t": "\t",
        "space": " ",
        "comma": ",",
        "semicolon": ";",
        "bar": "|",
    }
    return named.get(str(value), value)


Character = Annotated[
    str, BeforeValidator(_character), Field(pattern=r"^(auto|[\s\S])$")
]


class InputSettings(Section):
    """How the tables are read."""

    directed: bool = False
    """true: edges have a direction; false: the reverse of every edge is added where it
    is missing"""
    duplicates: Literal["drop", "sum"] = "drop"
    """what to do with duplicate edges: drop keeps one, sum adds their weights"""
    unknown_nodes: Literal["error", "drop"] = "error"
    """what to do with edges and memberships of nodes that are not in the node table"""
    memory: Size = "1 GiB"
    """memory for sorting the edges, on CPU or GPU, and for Leiden"""
    separator: Character = "auto"
    """text tables: character between the fields, or its name (comma, semicolon, bar,
    tab, space); auto: detected"""
    header: Literal["auto"] | bool = "auto"
    """text tables: whether the first row has the column names; without them columns are
    named column1, column2, ...; auto: detected"""
    decimal: Literal["auto", ".", ","] = "auto"
    """text tables: decimal separator; auto: detected"""

    @property
    def memory_bytes(self) -> int:
        """Memory for the edge sort in bytes."""
        return parse_bytes(self.memory)


class FeatureSettings(Section):
    """How feature columns are prepared for the reservoir."""

    scale: Literal["auto", "robust", "none"] = "auto"
    """auto: standardise named columns, and the columns of a list whose values are out
    of the ordinary range; robust: standardise all columns; none: use the unchanged
    values of the table"""


class CheckSettings(Section):
    """What the profile of the tables (`xnq-dist profile`) accepts."""

    accept: tuple[Code, ...] = ()
    """codes of findings to accept: they are notes then"""


Missing = Literal["auto"] | tuple[Text, ...]
"""Values of labels that mean unlabelled; auto: the words of `graph.labels`."""


class LabelSettings(Section):
    """How nodes were chosen for labelling."""

    drawn: Literal["unknown", "random", "by_class", "by_place", "weighted"] = "unknown"
    """how the labelled nodes were chosen. random: any node as likely as any other;
    by_class: some classes likelier than others; by_place: by where a node is in the
    graph or by its features, never by its class; weighted: by known probabilities,
    whose inverses are in columns.label_weight; unknown: tested, and intervals allow for
    a choice by class"""
    missing: Missing = "auto"
    """label values that mean unlabelled, such as [-1] or [unknown, NA]; auto: empty
    text, NA, N/A, NaN, null, None and ?; []: every value is a class"""
    prior: dict[Text, float] | None = None
    """share of each class in the complete graph where it is known, such as {human:
    0.85, bot: 0.15} (labels.drawn = unknown or by_class); null: it is estimated"""

    def faults(self) -> Iterator[str]:
        """A prior that is no distribution, or that nothing uses."""
        if self.prior is None:
            return
        shares = list(self.prior.values())
        if not all(0 <= share <= 1 for share in shares) or (
            abs(sum(shares) - 1) > PRIOR_TOLERANCE
        ):
            yield (
                f"labels.prior ({shares}) sums to {sum(shares):.8g}: give the share of "
                "every class in the complete graph, between 0 and 1 and with sum 1"
            )
        if self.drawn not in ("unknown", "by_class"):
            yield (
                f"labels.prior is not used with labels.drawn = {self.drawn}: set "
                "labels.drawn = by_class, or leave labels.prior out"
            )


class MembershipSettings(Section):
    """How the communities were formed."""

    drawn: Literal["unknown", "by_class"] = "unknown"
    """how communities were formed. by_class: membership depends on the class alone, so
    quantifier=auto uses SLD; unknown: it uses posteriors, as auto.pooled says"""


class AutoSettings(Section):
    """The default quantifier."""

    pooled: bool = True
    """whether a community's labelled members move the estimate of the others, as far as
    labels show that communities differ by class; false: the mean posterior, independent
    of the other communities"""


class LeidenSettings(Section):
    """Community detection."""

    resolution: float = Field(1.0, gt=0, allow_inf_nan=False)
    """resolution of the modularity; larger values give more communities"""


class ReservoirSettings(Section):
    """The untrained graph reservoir (METHODS: node embedder)."""

    dim: int = Field(256, ge=1, le=16384)
    """embedding dimension (reservoir units), d'; method=xnq gains from 512 or more"""
    supersteps: Annotated[int, Field(ge=1, le=10000)] | Literal["auto"] = "auto"
    """number of message-passing iterations (supersteps), L; auto: two more than the
    distance within which 90 % of the node pairs lie, 30 at most"""
    recurrent_scale: Scale | Scales | Literal["select"] = "select"
    """spectral radius of the recurrent matrix times that of the adjacency matrix (above
    1: not contractive); a list: one reservoir for each value, which share the units;
    select: by held-out log-loss (xnq), or 1, 3, 8 and 20 together (xnq+)"""
    input_scale: Scale | Literal["select"] = "select"
    """input weights are uniform in plus or minus this value; select: by held-out
    log-loss (xnq), or 0.3 (xnq+)"""
    matrix: Literal["dense", "sparse"] = "sparse"
    """form of the recurrent matrix W"""


class ExchangeSettings(Section):
    """Halo exchange between supersteps."""

    dtype: Literal["float32", "float16"] = "float32"
    """precision of exchanged and stored states; float16: on CPUs, in half the memory"""

    @property
    def on_cpus(self) -> bool:
        """Whether all work is on CPUs with ``backend = auto``."""
        return self.dtype == "float16"


class CheckpointSettings(Section):
    """Checkpoints of the reservoir's states."""

    every: CountOrAuto = "auto"
    """supersteps between two checkpoints"""
    grace: float = Field(15.0, ge=0, allow_inf_nan=False)
    """seconds that a run which a signal ends may take to complete its supersteps and
    write a checkpoint; 0: it writes none"""


class EmbeddingSettings(Section):
    """The embedding table."""

    write: bool = True
    """keep embeddings/ once the posteriors are written"""


class ReadoutSettings(Section):
    """Logistic readout and calibration."""

    C: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["select"] = "select"
    """inverse L2 strength; select: chosen by out-of-fold log-loss"""
    calibration: Literal["bcts", "platt", "platt_logit", "temperature", "none"] = "bcts"
    """calibration method of the posteriors"""
    folds: int = Field(5, ge=2, le=100)
    """number of cross-fitting folds"""
    memory: Size = "2 GiB"
    """maximum memory for the embeddings of labelled nodes"""

    @property
    def memory_bytes(self) -> int:
        """Maximum bytes of the embeddings of labelled nodes."""
        return parse_bytes(self.memory)

    def max_rows(self, columns: int) -> int:
        """Maximum number of labelled nodes that models are fitted to."""
        return min(self.memory_bytes // (VALUE_BYTES * columns), MAX_ROWS)


Word = Annotated[Text, StringConstraints(strip_whitespace=True, min_length=1)]


class IntervalSettings(Section):
    """Intervals of the prevalence."""

    level: float = Field(0.95, gt=0, lt=1)
    """confidence level of the intervals"""
    resamples: Literal[0] | Annotated[int, Field(ge=20, le=100_000)] = 100
    """bootstrap resamples of a community (quantifiers other than auto), 20 or more; 0:
    no intervals"""


class QualitySettings(Section):
    """When an estimate is publishable (column `quality`).

    Suppressed where `disclosure` says so. Else the mean width of the classes' intervals
    decides.
    """

    widths: tuple[Width, Width] = (0.15, 0.40)
    """mean width of the intervals up to which estimates are publishable, and above
    which they are not; caution between the two"""

    def faults(self) -> Iterator[str]:
        """Widths in the wrong order."""
        if self.widths[0] > self.widths[1]:
            yield (
                f"quality.widths = {list(self.widths)} descends: give the width for "
                "publishable first"
            )


class DisclosureSettings(Section):
    """Which communities are suppressed, and what tables hold for them."""

    min_size: int = Field(10, ge=1, le=100)
    """number of members below which a community is suppressed: not shown on the page,
    in plots, artifacts and logs; 1: all are shown. What follows from several
    communities is not protected"""
    table: Literal["quality", "nulls"] = "quality"
    """suppressed communities in the table prevalence. quality: estimates remain, and
    the column quality is suppressed; nulls: estimates and counts of labels are null"""


class AnomalySettings(Section):
    """Communities that differ significantly from the rest or from an earlier run."""

    rate: float = Field(0.05, gt=0, lt=1)
    """false discovery rate for anomalous communities"""
    last: Literal["previous"] | None = "previous"
    """earlier results to compare with: previous (what this run directory published
    before its inputs or settings changed) or null (none)"""


class RetentionSettings(Section):
    """How much of earlier runs a run directory keeps."""

    versions: int = Field(30, ge=2)
    """number of published versions kept in versions/ (the last two always are)"""


class ReportSettings(Section):
    """Words and class of the report page; estimates do not depend on them."""

    # `class` is a keyword of Python.
    shown_class: Word = Field("auto", alias="class")
    """class that the page and its first sentences are about; auto: the last class where
    classes are numbers or booleans, else the class with the fewest labelled nodes, of
    more than two classes with at least half of an equal share of them"""
    class_names: dict[Word, Word] = Field({})
    """class names to print, as they read after 'share of', such as {0: humans, 1:
    bots}"""
    community: Word | tuple[Word, Word] = "community"
    """word for a community, such as page; [country, countries] where the plural is not
    regular"""
    node: Word | tuple[Word, Word] = "node"
    """word for a node, such as user; or [person, people]"""


class WatchSettings(Section):
    """Links; no result depends on them."""

    address: str | None = Field(None, pattern=r"^https?://")
    """address under which a web server shows the run directory, for links to the report
    on Prefect's page; null: its path"""


class SlurmSettings(Section):
    """Jobs of the workers (cluster.kind=slurm)."""

    directives: tuple[Line, ...] = ()
    """options of sbatch, such as [--partition=short, --account=lab, '--time=4:00:00',
    --exclusive]; a job that reaches its time limit is replaced"""
    setup: tuple[Line, ...] = ()
    """shell commands of each job before its worker starts, such as [module load gcc]"""
    folder: Name | None = None
    """folder that this machine and the jobs share, for the certificates of a run, which
    only you can read, and the logs of its jobs; both are removed at the end; null: your
    home directory"""
    wait: float = Field(3600.0, gt=0)
    """seconds to wait until all jobs have started"""


class ClusterSettings(Section):
    """Where the work runs."""

    kind: Annotated[str, AfterValidator(CLUSTERS.check)] = Field(
        "auto", json_schema_extra=CLUSTERS.offer
    )
    """where workers run"""
    workers: CountOrAuto = "auto"
    """number of workers (local, slurm); 1 with kind=auto: this process"""
    threads: CountOrAuto = "auto"
    """threads of each worker (local, slurm)"""
    address: str | None = None
    """address of the scheduler (kind=address)"""
    tls_ca: str | None = None
    """certificate file of the authority that signed the cluster's certificates (for a
    tls:// address)"""
    tls_cert: str | None = None
    """certificate file of this client (for a tls:// address)"""
    tls_key: str | None = None
    """key file of this client (for a tls:// address)"""
    memory_limit: SizeOrAuto = "auto"
    """memory of each worker (local, slurm), such as '8 GiB'"""
    timeout: float = Field(60.0, gt=0)
    """seconds to wait for the scheduler and the first worker, and for a sign of life
    later on"""
    device_memory: SizeOrAuto = "auto"
    """GPU memory that each worker may use"""
    slurm: SlurmSettings = SlurmSettings()

    def faults(self) -> Iterator[str]:
        """What a kind of cluster needs or cannot use."""
        record = CLUSTERS[self.kind]
        if record.queued and "auto" in (self.workers, self.memory_limit):
            yield (
                f"cluster.kind = {self.kind} needs cluster.workers and "
                "cluster.memory_limit: set the number of jobs, and the memory of each "
                "worker"
            )
        running = record.running
        if running and not self.address:
            yield f"cluster.kind = {self.kind} needs cluster.address"
        if not running and self.address:
            yield (
                f"cluster.address is set but cluster.kind = {self.kind}: "
                "set cluster.kind = address"
            )
        address = self.address or ""
        if "@" in address:
            yield (
                "cluster.address takes no user name or password: set it to "
                "tls://host:port, and cluster.tls_ca, tls_cert and tls_key to the "
                "certificates"
            )
        files = (self.tls_ca, self.tls_cert, self.tls_key)
        if any(files) and not (all(files) and address.startswith("tls://")):
            yield (
                "cluster.tls_ca, cluster.tls_cert and cluster.tls_key belong together: "
                "set all three, with cluster.kind = address and cluster.address = "
                "tls://host:port (local clusters create their credentials)"
            )
