"""The sections of the settings: names, ranges, defaults and meaning of each key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from xnq_dist.core.redaction import redacted
from xnq_dist.core.sizes import check_size, parse_bytes

__all__ = [
    "AnomalySettings",
    "AutoSettings",
    "CheckpointSettings",
    "ClusterSettings",
    "ColumnSettings",
    "EmbeddingSettings",
    "EvaluationSettings",
    "ExchangeSettings",
    "FeatureSettings",
    "FitSettings",
    "InputSettings",
    "IntervalSettings",
    "KdeySettings",
    "LeidenSettings",
    "MatchingSettings",
    "MembershipSettings",
    "PlusSettings",
    "QualitySettings",
    "ReadoutSettings",
    "ReservoirSettings",
    "RetentionSettings",
    "Section",
    "SldSettings",
    "check_units",
]

FEWEST_RESAMPLES = 20
"""Below it the variance of the resamples themselves makes intervals too narrow."""


class Section(BaseModel):
    """What every section of the settings is: frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Dask logs the arguments of a task that failed.
        for name, value in super().__repr_args__():
            yield name, redacted(value)


class ColumnSettings(Section):
    """Names of the columns in the user's tables."""

    node_id: str = Field("node_id", description="node id in the node table")
    features: str | list[str] | None = Field(
        "features",
        description="one fixed-size-list column, a list of numeric columns, or null: "
        "the graph alone, every node with the constant feature 1",
    )
    label: str = Field("label", description="label; null means unlabelled")
    role: str = Field("role", description="optional: `train` or `calibration`")
    node_weight: str | None = Field(
        None,
        description="column of the node table with each node's weight (persons, views, "
        "followers), finite and not negative: prevalence is then of the weight, not of "
        "the nodes (quantifier = auto); null: every node counts once",
    )
    label_weight: str | None = Field(
        None,
        description="inclusion weight of a labelled node: 1 / the probability that it "
        "was chosen for a label; goes with labels.drawn = weighted",
    )
    src: str = Field("src", description="source of an edge")
    dst: str = Field("dst", description="target of an edge")
    weight: str = Field("weight", description="optional edge weight")
    community: str = Field("community", description="community in the memberships")
    parent: str = Field("parent", description="optional: the community's parent")
    member: str = Field("node_id", description="node id in the memberships")


class InputSettings(Section):
    """How the tables are read."""

    directed: bool = Field(
        False, description="false: add the reverse of every edge that lacks it"
    )
    self_loops: Literal["keep", "drop"] = Field("keep", description="edges v -> v")
    duplicates: Literal["drop", "sum"] = Field(
        "drop", description="edges named twice: keep one, or add their weights"
    )
    unknown_nodes: Literal["error", "drop"] = Field(
        "error", description="edges and memberships of nodes not in the node table"
    )
    memory: str | int = Field(
        "1 GiB",
        description="memory for the streaming sort of the edges, on a GPU too",
    )

    engine: Literal["auto", "cpu", "cudf"] = Field(
        "auto",
        description="who reads the edges, same bits: auto: cudf beside cluster.kind = "
        "cuda where it is installed, else cpu",
    )

    @model_validator(mode="after")
    def _sizes(self) -> InputSettings:
        check_size(self.memory)
        if self.memory == "auto":
            raise ValueError("input.memory must be a size such as '1 GiB'")
        return self

    @property
    def memory_bytes(self) -> int:
        """Memory for the edge sort in bytes."""
        return parse_bytes(self.memory)


class FeatureSettings(Section):
    """What becomes of the feature columns before the reservoir sees them."""

    scale: Literal["auto", "robust", "none"] = Field(
        "auto",
        description="auto: standardise named columns, and the columns of a list whose "
        "values are out of the ordinary range; robust: standardise all columns; none: "
        "use the values as they are in the table",
    )


Scale = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Scales = Annotated[tuple[Scale, ...], Field(min_length=1, max_length=64)]


class ReservoirSettings(Section):
    """The untrained graph reservoir (METHODS: node embedder)."""

    dim: int = Field(
        256,
        ge=1,
        le=65536,
        description="units of the state, d'; method = xnq gains from 512 or more",
    )
    supersteps: Annotated[int, Field(ge=1, le=10000)] | Literal["auto"] = Field(
        "auto",
        description="updates of every state, L; auto: two more than the distance "
        "within which 90 % of the pairs of nodes lie, 30 at most",
    )
    bias_scale: float = Field(
        0.1, ge=0, le=1000, allow_inf_nan=False, description="range of the bias b"
    )
    recurrent_scale: Scale | Scales | Literal["select"] = Field(
        "select",
        description="rho(W) times rho(A), above 1 not contractive; a list: that many "
        "reservoirs side by side, which share the units",
    )
    input_scale: Scale | Literal["select"] = Field(
        "select", description="range of the input weights"
    )
    matrix: Literal["dense", "sparse", "ring"] = Field(
        "sparse", description="form of the recurrent matrix"
    )
    nonzeros: int = Field(
        16, ge=1, description="non-zeros a row when sparse, at most all units"
    )
    rho: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = Field(
        "auto", description="spectral radius of the adjacency matrix, or measured"
    )
    tile: int | None = Field(
        None, ge=1, description="columns exchanged and gathered at a time; null: all"
    )
    precision: Literal["float32", "tf32", "float16", "bfloat16"] = Field(
        "float32", description="of states and products on a GPU"
    )

    @model_validator(mode="after")
    def _units_for_every_scale(self) -> ReservoirSettings:
        if isinstance(self.recurrent_scale, tuple):
            check_units(self.dim, self.recurrent_scale, "reservoir.recurrent_scale")
        return self


def check_units(dim: int, scales: tuple[float, ...], name: str) -> None:
    """Refuse more reservoirs than units, as pydantic wants it: a ValueError."""
    if len(scales) > dim:
        raise ValueError(
            f"{name} has {len(scales)} scales for {dim} units: set a larger "
            "reservoir.dim"
        )


class ExchangeSettings(Section):
    """Halo exchange between supersteps."""

    engine: Literal["tasks", "spmd"] = Field(
        "tasks",
        description="superstep tasks, or one task a worker that sends worker to worker",
    )
    dtype: Literal["float32", "float16"] = Field(
        "float32", description="precision of states, exchanged and kept"
    )
    states: Literal["auto", "memory", "disk"] = Field(
        "auto",
        description="states between supersteps; disk: files that all workers see, in "
        "the run directory or scratch; auto: disk where memory does not do",
    )

    @property
    def on_cpus(self) -> bool:
        """Whether CPUs do the supersteps, whatever the backend."""
        return self.engine == "spmd" or self.states == "disk"


class CheckpointSettings(Section):
    """Checkpoints of the reservoir's states."""

    every: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="supersteps between two checkpoints"
    )


class EmbeddingSettings(Section):
    """The embedding table."""

    write: bool = Field(
        True, description="keep embeddings/ after the posteriors are written"
    )
    dtype: Literal["float32", "float16"] = Field("float32", description="precision")


class ReadoutSettings(Section):
    """Logistic readout and calibration."""

    C: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["select"] = Field(
        "select", description="inverse L2 strength, or by out-of-fold log-loss"
    )
    calibration: Literal["bcts", "platt", "platt_logit", "temperature", "none"] = Field(
        "bcts", description="how posteriors are calibrated"
    )
    folds: int = Field(5, ge=2, le=100, description="folds of the cross-fitting")
    memory: str | int = Field(
        "2 GiB", description="most that the labelled rows' embeddings may take"
    )

    @model_validator(mode="after")
    def _sizes(self) -> ReadoutSettings:
        check_size(self.memory)
        if self.memory == "auto":
            raise ValueError("readout.memory must be a size such as '2 GiB'")
        return self

    @property
    def memory_bytes(self) -> int:
        """Most bytes that the labelled rows' embeddings may take."""
        return parse_bytes(self.memory)


class PlusSettings(Section):
    """The method xnq+ (METHODS: label features, second stage)."""

    recurrent_scales: Scales = Field(
        (1.0, 3.0, 8.0, 20.0),
        description="reservoirs side by side where reservoir.recurrent_scale = select",
    )
    input_scale: Scale = Field(
        0.3, description="where reservoir.input_scale = select: xnq+ does not search"
    )
    smoothing: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="labels' worth of the prior in a share among labelled neighbours",
    )
    boosting: Literal["auto", "never"] = Field(
        "auto",
        description="auto: boosted trees join the pool of the second stage",
    )


class SldSettings(Section):
    """Stopping rule of the EM quantifiers (sld, sld_bcts)."""

    tolerance: float = Field(
        1e-4, gt=0, lt=1, description="mean absolute change that stops EM"
    )
    max_iterations: int = Field(1000, ge=1, description="most EM iterations")


class AutoSettings(Section):
    """The quantifier auto."""

    reference_edges: int = Field(
        5_000_000,
        ge=0,
        description="number of edges up to which Leiden partitions the graph "
        "into the groups that intervals are learnt on (all edges in one process); "
        "above it label propagation does, on the workers",
    )


class MembershipSettings(Section):
    """How the communities came about."""

    drawn: Literal["unknown", "by_class"] = Field(
        "unknown",
        description="by_class: communities are samples in which nothing but the class "
        "decided who is a member, so that quantifier = auto uses SLD; unknown: the "
        "mean posterior",
    )
    parents: str | None = Field(
        None,
        description="table with columns.community and columns.parent: each community's "
        "parent, whose members are all members of its communities; null: the column "
        "columns.parent of the memberships table, where there is one",
    )


class QualitySettings(Section):
    """When an estimate is publishable (column `quality`).

    Suppressed below `suppressed_below` members; not publishable where the interval is
    wider than `wide`; publishable where it is at most `narrow`, or at most `relative`
    times the estimate; with caution otherwise, and below `caution_below` members. The
    defaults are those of the U.S. National Center for Health Statistics for
    proportions (2017), with caution in place of suppression for small samples and for
    wide relative intervals.
    """

    suppressed_below: int = Field(
        10, ge=0, description="number of members below which estimates are suppressed"
    )
    caution_below: int = Field(
        30, ge=0, description="number of members below which caution is advised"
    )
    narrow: float = Field(
        0.05, ge=0, le=1, description="interval width up to which it is publishable"
    )
    wide: float = Field(
        0.30, ge=0, le=1, description="interval width above which it is not"
    )
    relative: float = Field(
        1.30,
        ge=0,
        allow_inf_nan=False,
        description="interval width over the estimate, above which caution is advised",
    )


class IntervalSettings(Section):
    """Intervals of the prevalence."""

    level: float = Field(0.95, gt=0, lt=1, description="probability of an interval")
    resamples: int = Field(
        100,
        ge=0,
        le=100_000,
        description="bootstrap resamples of a community (quantifiers other than auto): "
        "20 or more, 100 are enough for a mean and a variance; 0: no intervals",
    )

    seed_runs: tuple[str, ...] = Field(
        (),
        description="directories of finished runs that differ from this one in their "
        "seed alone: the variance between them widens the intervals",
    )

    @field_validator("resamples")
    @classmethod
    def _enough(cls, value: int) -> int:
        if 0 < value < FEWEST_RESAMPLES:
            raise ValueError(
                f"{value} resamples leave intervals too narrow: give "
                f"{FEWEST_RESAMPLES} or more, or 0 for none"
            )
        return value


class FitSettings(Section):
    """Which estimates are expected to err much, and which disagree with labels."""

    error: float = Field(
        0.04,
        gt=0,
        lt=1,
        description="expected absolute error of a share above which a community is "
        "flagged",
    )
    alpha: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="p-value below which labelled members disagree with their "
        "posteriors",
    )


class AnomalySettings(Section):
    """Communities that differ from the rest, or from before, beyond chance."""

    rate: float = Field(
        0.05, gt=0, lt=1, description="rate of false discoveries among the anomalous"
    )
    reference: Annotated[float, Field(ge=0, le=1)] | Literal["rest"] = Field(
        "rest",
        description="what communities are compared with: the mean of all others but "
        "those far off, or a share of the last class",
    )
    last: Annotated[str, Field(min_length=1)] | None = Field(
        "previous",
        description="earlier results to compare with: previous, those that this run "
        "directory published before its tables or settings changed; another run's "
        "directory; null: none",
    )


class RetentionSettings(Section):
    """What a run directory keeps of earlier runs."""

    versions: int = Field(
        30,
        ge=2,
        description="published versions that are kept in versions/; the current one "
        "and the one before it always are",
    )
    quarantine_days: float = Field(
        30.0,
        ge=0,
        allow_inf_nan=False,
        description="days that damaged files are kept in quarantine/; the newest "
        "always is",
    )


class MatchingSettings(Section):
    """Histograms of posteriors (dys, dmy; hdy has its own)."""

    bins: int = Field(8, ge=2, le=1024, description="bins of a histogram (dys, dmy)")


class KdeySettings(Section):
    """Kernel densities of posteriors (kdey_ml)."""

    bandwidth: float = Field(
        0.1, ge=0.01, le=10, description="standard deviation of the Gaussian kernel"
    )


class LeidenSettings(Section):
    """Detected communities."""

    resolution: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="resolution of the modularity"
    )
    engine: Literal["auto", "igraph", "cugraph"] = Field(
        "auto",
        description="auto: cugraph beside cluster.kind = cuda where it is installed, "
        "else igraph; cugraph need not give the same communities twice",
    )


class EvaluationSettings(Section):
    """The protocol of `evaluate`."""

    dims: tuple[Annotated[int, Field(ge=1, le=65536)], ...] = Field(
        (512, 1024, 2048, 4096),
        min_length=1,
        description="sizes of the reservoir that the search draws from",
    )
    sample_size: int = Field(500, ge=1, description="nodes of a sample")
    repeats: int = Field(
        100, ge=1, description="samples a prevalence (two classes), or in all (more)"
    )
    calibrations: tuple[
        Literal["bcts", "platt", "platt_logit", "temperature", "none"], ...
    ] = Field(
        ("bcts", "platt", "platt_logit", "temperature", "none"),
        min_length=1,
        description="calibrations that validation chooses from",
    )
    label_draws: int = Field(
        3, ge=1, description="draws of the labels shown (--communities)"
    )


class ClusterSettings(Section):
    """Where the work runs."""

    kind: Literal["local", "address", "cuda"] = Field(
        "local", description="processes here, a running scheduler, or GPUs here"
    )
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="worker processes (local)"
    )
    threads: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="threads a worker (local)"
    )
    address: str | None = Field(None, description="scheduler address (address)")
    tls_ca: str | None = Field(
        None,
        description="file of the authority that signed the certificates of a cluster "
        "at a tls:// address",
    )
    tls_cert: str | None = Field(
        None, description="file of this client's certificate, for that cluster"
    )
    tls_key: str | None = Field(
        None, description="file of the key to this client's certificate"
    )
    memory_limit: str | int = Field(
        "auto", description="memory of one worker (local), such as '8 GiB'"
    )
    timeout: float = Field(
        60.0, gt=0, description="seconds to wait for the scheduler and a first worker"
    )
    device_memory: str | int = Field(
        "auto", description="memory of its GPU that a worker may use"
    )
    protocol: Literal["auto", "tcp", "ucx"] = Field(
        "auto",
        description="between GPU workers (cuda); auto: TCP, encrypted; ucx: faster, "
        "and open to every user who can reach the machine",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ClusterSettings:
        check_size(self.memory_limit)
        check_size(self.device_memory)
        if self.kind == "address" and not self.address:
            raise ValueError("cluster.kind = address needs cluster.address")
        if self.kind != "address" and self.address:
            raise ValueError(
                f"cluster.address is set but cluster.kind = {self.kind}: "
                "set cluster.kind = address"
            )
        return self

    @model_validator(mode="after")
    def _certificates_fit(self) -> ClusterSettings:
        address = self.address or ""
        if "@" in address:
            raise ValueError(
                "cluster.address takes no user name or password: give tls://host:port, "
                "and the certificates in cluster.tls_ca, tls_cert and tls_key"
            )
        files = (self.tls_ca, self.tls_cert, self.tls_key)
        if any(files) and not all(files):
            raise ValueError(
                "cluster.tls_ca, cluster.tls_cert and cluster.tls_key belong together: "
                "set all three"
            )
        if any(files) and not address.startswith("tls://"):
            raise ValueError(
                "cluster.tls_ca, tls_cert and tls_key are for a cluster of your own: "
                "set cluster.kind = address and cluster.address = tls://host:port "
                "(local clusters make credentials of their own)"
            )
        return self
