"""Every setting, once: names, ranges, defaults and meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from xnq_dist.complaints import explain
from xnq_dist.errors import SettingsError
from xnq_dist.sizes import check_size, parse_bytes

__all__ = ["Settings", "load_settings"]


FEWEST_RESAMPLES = 20
"""Below it the variance of the resamples themselves makes intervals too narrow."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class ColumnSettings(_Model):
    """Names of the columns in the user's tables."""

    node_id: str = Field("node_id", description="node id in the node table")
    features: str | list[str] | None = Field(
        "features",
        description="one fixed-size-list column, a list of numeric columns, or null: "
        "the graph alone, every node with the constant feature 1",
    )
    label: str = Field("label", description="label; null means unlabelled")
    role: str = Field("role", description="optional: `train` or `calibration`")
    src: str = Field("src", description="source of an edge")
    dst: str = Field("dst", description="target of an edge")
    weight: str = Field("weight", description="optional edge weight")
    community: str = Field("community", description="community in the memberships")
    member: str = Field("node_id", description="node id in the memberships")


class InputSettings(_Model):
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
        "1 GiB", description="memory for the streaming sort of the edges"
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


Scale = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Scales = Annotated[tuple[Scale, ...], Field(min_length=1, max_length=64)]


class ReservoirSettings(_Model):
    """The untrained graph reservoir (METHODS: node embedder)."""

    dim: int = Field(512, ge=1, le=65536, description="units of the state, d'")
    supersteps: Annotated[int, Field(ge=1, le=10000)] | Literal["auto"] = Field(
        30,
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
        "dense", description="form of the recurrent matrix"
    )
    nonzeros: int = Field(16, ge=1, description="non-zeros a row when sparse")
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
    def _sparse_fits(self) -> ReservoirSettings:
        if self.matrix == "sparse" and self.nonzeros > self.dim:
            raise ValueError(
                f"reservoir.nonzeros = {self.nonzeros} is more than reservoir.dim = "
                f"{self.dim}"
            )
        return self

    @model_validator(mode="after")
    def _units_for_every_scale(self) -> ReservoirSettings:
        if isinstance(self.recurrent_scale, tuple):
            _check_units(self.dim, self.recurrent_scale, "reservoir.recurrent_scale")
        return self


def _check_units(dim: int, scales: tuple[float, ...], name: str) -> None:
    if len(scales) > dim:
        raise ValueError(
            f"{name} has {len(scales)} scales for {dim} units: set a larger "
            "reservoir.dim"
        )


class ExchangeSettings(_Model):
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


class CheckpointSettings(_Model):
    """Checkpoints of the reservoir's states."""

    every: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="supersteps between two checkpoints"
    )


class EmbeddingSettings(_Model):
    """The embedding table."""

    write: bool = Field(
        True, description="keep embeddings/ after the posteriors are written"
    )
    dtype: Literal["float32", "float16"] = Field("float32", description="precision")


class ReadoutSettings(_Model):
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


class PlusSettings(_Model):
    """The method xnq+ (METHODS: label features, second stage)."""

    recurrent_scales: Scales = Field(
        (1.0, 3.0, 8.0, 20.0),
        description="reservoirs side by side where reservoir.recurrent_scale = select",
    )
    input_scale: Scale = Field(
        0.3, description="where reservoir.input_scale = select: xnq+ does not search"
    )
    rounds: Annotated[
        tuple[Annotated[int, Field(ge=1, le=100)], ...], Field(min_length=1)
    ] = Field((3, 10), description="rounds of wvRN whose scores are label features")
    smoothing: float = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="labels' worth of the prior in a share among labelled neighbours",
    )
    boosting: Literal["auto", "never"] = Field(
        "auto",
        description="auto: for two classes boosted trees compete with the logistic "
        "second stage",
    )
    node_features: int = Field(
        64,
        ge=0,
        description="most feature columns with which boosted trees are also given "
        "them and their means over neighbours; 0: never",
    )


class SldSettings(_Model):
    """Stopping rule of the EM quantifiers (sld, sld_bcts)."""

    tolerance: float = Field(
        1e-4, gt=0, lt=1, description="mean absolute change that stops EM"
    )
    max_iterations: int = Field(1000, ge=1, description="most EM iterations")


class AutoSettings(_Model):
    """The quantifier auto."""

    reference_edges: int = Field(
        5_000_000,
        ge=0,
        description="most edges of a graph whose own Leiden communities are learnt "
        "from where fewer than half of the labels lie in communities asked for: it "
        "needs all edges in one process; 0: never",
    )


class IntervalSettings(_Model):
    """Intervals of the prevalence."""

    level: float = Field(0.95, gt=0, lt=1, description="probability of an interval")
    resamples: int = Field(
        500,
        ge=0,
        le=100_000,
        description="bootstrap resamples of a community (quantifiers other than auto), "
        "20 or more; 0: no intervals",
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


class FitSettings(_Model):
    """The check whether class proportions alone explain a community's posteriors."""

    alpha: float = Field(
        0.01, ge=0, lt=1, description="p-value below which a community is flagged"
    )


class AnomalySettings(_Model):
    """Communities that differ from the rest, or from before, beyond chance."""

    rate: float = Field(
        0.05, gt=0, lt=1, description="rate of false discoveries among the anomalous"
    )
    reference: Annotated[float, Field(ge=0, le=1)] | Literal["rest"] = Field(
        "rest",
        description="what communities are compared with: the mean of all others, or a "
        "share of the last class",
    )
    last: Annotated[str, Field(min_length=1)] | None = Field(
        "previous",
        description="earlier results whose changes are told: previous, those that this "
        "run directory held before its tables or settings changed; another run's "
        "directory; null: none",
    )


class MatchingSettings(_Model):
    """Histograms of posteriors (dys, dmy; hdy has its own)."""

    bins: int = Field(8, ge=2, le=1024, description="bins of a histogram (dys, dmy)")


class KdeySettings(_Model):
    """Kernel densities of posteriors (kdey_ml)."""

    bandwidth: float = Field(
        0.1, ge=0.01, le=10, description="standard deviation of the Gaussian kernel"
    )


class LeidenSettings(_Model):
    """Detected communities."""

    resolution: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="resolution of the modularity"
    )
    engine: Literal["auto", "igraph", "cugraph"] = Field(
        "auto",
        description="auto: cugraph beside cluster.kind = cuda where it is installed, "
        "else igraph; cugraph need not give the same communities twice",
    )


class EvaluationSettings(_Model):
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


class ClusterSettings(_Model):
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
        "auto", description="between GPU workers (cuda); auto: UCX where installed"
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


class Settings(_Model):
    """All settings of a run; the YAML file and ``--set`` use these names."""

    seed: int = Field(0, ge=0, lt=2**63, description="seed of every random stream")
    backend: Literal["auto", "cpu", "gpu"] = Field(
        "auto", description="auto: the GPU where CuPy finds one on every worker"
    )
    partitions: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = Field(
        "auto", description="parts of the graph; auto: one per worker"
    )
    partitioner: Literal["auto", "metis", "stream", "contiguous", "random"] = Field(
        "auto", description="how nodes are divided"
    )
    method: Literal["xnq", "xnq+"] = Field(
        "xnq+",
        description="xnq, or xnq+: label features and a second stage, all labels with "
        "a role pooled and cross-fitted",
    )
    quantifier: Literal[
        "auto",
        "sld",
        "sld_bcts",
        "sld_exact",
        "cc",
        "pcc",
        "acc",
        "pacc",
        "nacc",
        "npacc",
        "hdy",
        "dys",
        "dmy",
        "kdey_ml",
    ] = Field(
        "auto",
        description="estimator of a community's prevalence; auto: SLD for scattered "
        "samples, what the labels bear out for others, with intervals; nacc and npacc: "
        "acc and pacc that look at neighbours too; hdy and dys for two classes only",
    )
    labelled: Literal["count", "exclude"] = Field(
        "count", description="known labels counted, or unlabelled nodes only"
    )
    communities: str = Field(
        "auto",
        pattern=r"^(auto|given|leiden|column:.+)$",
        description="given, column:NAME, leiden; auto: given when a memberships "
        "table is named, else leiden",
    )
    columns: ColumnSettings = ColumnSettings()
    input: InputSettings = InputSettings()
    reservoir: ReservoirSettings = ReservoirSettings()
    exchange: ExchangeSettings = ExchangeSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    readout: ReadoutSettings = ReadoutSettings()
    plus: PlusSettings = PlusSettings()
    auto: AutoSettings = AutoSettings()
    intervals: IntervalSettings = IntervalSettings()
    fit: FitSettings = FitSettings()
    anomalies: AnomalySettings = AnomalySettings()
    sld: SldSettings = SldSettings()
    matching: MatchingSettings = MatchingSettings()
    kdey: KdeySettings = KdeySettings()
    leiden: LeidenSettings = LeidenSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    cluster: ClusterSettings = ClusterSettings()
    scratch: str | None = Field(
        None, description="local folder for temporary files; null: the system's"
    )

    @model_validator(mode="after")
    def _units_for_every_scale(self) -> Settings:
        if self.method == "xnq+" and self.reservoir.recurrent_scale == "select":
            scales = self.plus.recurrent_scales
            _check_units(self.reservoir.dim, scales, "plus.recurrent_scales")
        return self

    @model_validator(mode="after")
    def _backend_fits(self) -> Settings:
        precision = self.reservoir.precision
        on_gpu = self.cluster.kind == "cuda" or precision != "float32"
        if self.backend == "cpu" and on_gpu:
            raise ValueError(
                "cluster.kind = cuda and reservoir.precision need backend = auto or gpu"
            )
        if precision == "bfloat16" and self.exchange.dtype == "float16":
            raise ValueError("bfloat16 states need exchange.dtype = float32")
        if self.exchange.on_cpus and (self.backend == "gpu" or on_gpu):
            raise ValueError(
                "exchange.engine = spmd and exchange.states = disk work on CPUs: set "
                "backend = cpu, or exchange.engine = tasks and states = auto"
            )
        other = self.exchange.engine == "spmd" or self.reservoir.tile is not None
        if self.exchange.states == "disk" and other:
            raise ValueError(
                "exchange.states = disk needs engine = tasks and reservoir.tile = null"
            )
        return self


def load_settings(
    file: str | Path | None = None,
    overrides: Iterable[str] = (),
    base: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from a YAML file and ``a.b=value`` overrides.

    Parameters
    ----------
    file
        YAML file with the names of `Settings`, or None.
    overrides
        Texts ``key.key=value``; the value is read as YAML.
    base
        Values below the file's, as nested mappings.

    Raises
    ------
    SettingsError
        When the file cannot be read, or any key is unknown or out of range; the
        message names every key at fault.

    Examples
    --------
    >>> load_settings(overrides=["reservoir.dim=64"]).reservoir.dim
    64
    """
    values: dict[str, Any] = {}
    _merge(values, dict(base or {}))
    if file is not None:
        _merge(values, _read_yaml(Path(file)))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"--set {override!r} is not of the form key=value")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SettingsError(f"--set {override!r}: not a YAML value") from error
        nested: dict[str, Any] = {}
        inner = nested
        *parents, last = key.strip().split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
        _merge(values, nested)
    return validate_settings(values)


def validate_settings(values: Mapping[str, Any]) -> Settings:
    """`Settings` from nested mappings; `SettingsError` names every key at fault."""
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        raise SettingsError(explain(error, _known_keys(Settings))) from error


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"settings file {path} cannot be read ({error.strerror}): check --config"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {path} is not YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(f"settings file {path} must hold keys and values")
    return values


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += _known_keys(kind, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys
