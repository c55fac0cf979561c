"""All settings: consistency checks across sections, and loading from file or text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ValidationError,
    model_validator,
)

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.delivery_settings import (
    LineageSettings,
    SinkSettings,
    WatchSettings,
)
from xnq_dist.core.errors import SettingsError
from xnq_dist.core.label_settings import LabelSettings
from xnq_dist.core.method_records import METHODS, method_of
from xnq_dist.core.quantifiers import QUANTIFIERS, offer_quantifiers
from xnq_dist.core.report_settings import ReportSettings
from xnq_dist.core.reservoir_settings import (
    CheckpointSettings,
    EmbeddingSettings,
    ExchangeSettings,
    PlusSettings,
    ReservoirSettings,
    check_units,
)
from xnq_dist.core.result_settings import (
    AnomalySettings,
    DisclosureSettings,
    FitSettings,
    IntervalSettings,
    QualitySettings,
    RetentionSettings,
)
from xnq_dist.core.section import Section
from xnq_dist.core.settings_errors import explain, renamed
from xnq_dist.core.settings_sections import (
    AutoSettings,
    CheckSettings,
    ClusterSettings,
    ColumnSettings,
    EvaluationSettings,
    FeatureSettings,
    KdeySettings,
    LeidenSettings,
    MatchingSettings,
    MembershipSettings,
    ReadoutSettings,
    SldSettings,
)
from xnq_dist.core.sizes import human
from xnq_dist.core.text_settings import ReadSettings

__all__ = ["Settings", "load_settings", "merged", "recorded_settings"]

FILE_SIZE = 1 << 20
"""Maximum size of a settings file, in bytes."""
DEPTH = 20
"""Maximum number of levels in YAML; settings have four."""


class Settings(Section):
    """All settings of a run; the YAML file and ``--set`` use these names."""

    seed: int = Field(0, ge=0, lt=2**63, description="seed of every random stream")
    backend: Literal["auto", "cpu", "gpu"] = Field(
        "auto",
        description="processor for the kernels; auto: the GPU if every worker has one",
    )
    partitions: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = Field(
        "auto",
        description="number of parts of the graph; auto: one for each worker, more "
        "if memory is not enough",
    )
    partitioner: Literal["auto", "metis", "stream", "contiguous", "random"] = Field(
        "auto", description="how nodes are assigned to partitions"
    )
    method: Annotated[str, AfterValidator(METHODS.check)] = Field(
        "xnq+",
        description="how posteriors are made",
        json_schema_extra=METHODS.offer,
    )
    quantifier: Annotated[str, AfterValidator(QUANTIFIERS.check)] = Field(
        "auto",
        description="estimator of a community's prevalence; auto: mean posterior of "
        "the unlabelled members, with intervals",
        json_schema_extra=offer_quantifiers,
    )
    labelled: Literal["count", "exclude"] = Field(
        "count",
        description="count: labelled nodes count with their label, other nodes are "
        "estimated; exclude: estimate only the unlabelled nodes",
    )
    communities: str = Field(
        "auto",
        pattern=r"^(auto|given|leiden|column:.+)$",
        description="given: from the memberships table; column:NAME: from a column of "
        "the node table; leiden: detected; auto: given if there is a memberships "
        "table, else leiden",
    )
    benchmark: str | None = Field(
        None,
        description="table of known shares or counts that estimates are raked to "
        "(quantifier=auto; result in columns benchmarked, benchmarked_lower, "
        "benchmarked_upper). Its columns: columns.community (null: the whole graph), "
        "class, share or count (of nodes, or of columns.node_weight), and optionally "
        "se (standard error); null: no benchmarks",
    )
    columns: ColumnSettings = ColumnSettings()
    features: FeatureSettings = FeatureSettings()
    input: ReadSettings = ReadSettings()
    reservoir: ReservoirSettings = ReservoirSettings()
    exchange: ExchangeSettings = ExchangeSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    readout: ReadoutSettings = ReadoutSettings()
    plus: PlusSettings = PlusSettings()
    auto: AutoSettings = AutoSettings()
    labels: LabelSettings = LabelSettings()
    checks: CheckSettings = CheckSettings()
    memberships: MembershipSettings = MembershipSettings()
    quality: QualitySettings = QualitySettings()
    disclosure: DisclosureSettings = DisclosureSettings()
    intervals: IntervalSettings = IntervalSettings()
    fit: FitSettings = FitSettings()
    anomalies: AnomalySettings = AnomalySettings()
    sld: SldSettings = SldSettings()
    matching: MatchingSettings = MatchingSettings()
    kdey: KdeySettings = KdeySettings()
    leiden: LeidenSettings = LeidenSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    cluster: ClusterSettings = ClusterSettings()
    retention: RetentionSettings = RetentionSettings()
    report: ReportSettings = ReportSettings()
    sinks: SinkSettings = SinkSettings()
    lineage: LineageSettings = LineageSettings()
    watch: WatchSettings = WatchSettings()
    scratch: str | None = Field(
        None, description="local folder for temporary files; null: that of the system"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        method = method_of(self.method)
        if "plus" in method.settings and self.reservoir.recurrent_scale == "select":
            scales = self.plus.recurrent_scales
            check_units(self.reservoir.dim, scales, "plus.recurrent_scales")
        faults = [*self._faults_of_readout(), *self._faults_of_devices()]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults_of_readout(self) -> Iterator[str]:
        method, folds = method_of(self.method), self.readout.folds
        if folds < method.min_folds:
            yield (
                f"readout.folds = {folds} leaves no fold to learn from when two are "
                f"held out: set {method.min_folds} or more, or method = xnq"
            )
        by_mean = self.quantifier == "auto" and self.memberships.drawn == "unknown"
        weighted = self.labels.drawn == "weighted"
        for name, value in (
            ("columns.node_weight", self.columns.node_weight),
            ("benchmark", self.benchmark),
        ):
            if value is not None and not by_mean:
                yield (
                    f"{name} needs quantifier = auto and memberships.drawn = unknown: "
                    f"set them, or leave {name} out"
                )
        if weighted != (self.columns.label_weight is not None):
            yield (
                "labels.drawn = weighted and columns.label_weight go together: set "
                "both, or neither"
            )
        if weighted and not method.weights:
            yield (
                "labels.drawn = weighted needs method = xnq+, the readout that takes "
                "weights: set method = xnq+, or labels.drawn = unknown"
            )

    def _faults_of_devices(self) -> Iterator[str]:
        on_gpu = CLUSTERS.record_of(self.cluster.kind).gpu
        if self.backend == "cpu" and on_gpu:
            yield "cluster.kind = cuda needs backend = auto or gpu"
        if self.exchange.on_cpus and (self.backend == "gpu" or on_gpu):
            yield (
                "exchange.dtype = float16 needs CPUs: set backend = cpu, or "
                "exchange.dtype = float32"
            )


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
        Values that the file and `overrides` replace, as nested mappings; settings of
        earlier versions get their present names.

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
    values = merged(renamed(base or {}))
    if file is not None:
        _merge(values, _read_yaml(Path(file)))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise SettingsError(
                f"--set {override!r} is not of the form key=value: write it like "
                "--set seed=1"
            )
        try:
            value = _Plain(text).get_single_data()
        except yaml.YAMLError as error:
            raise SettingsError(
                f"--set {override[:200]!r}: the value is not YAML: quote it"
            ) from error
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
        raise SettingsError(explain(error, Settings)) from error


def recorded_settings(
    values: Mapping[str, Any], overrides: Iterable[str] = ()
) -> Settings:
    """Settings that a run directory records, with `overrides` as in `load_settings`.

    An earlier version may have written them: settings get their present names, and
    those that this version does not have are left out.
    """
    return load_settings(base=_known(renamed(values), Settings), overrides=overrides)


def _known(values: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """The values that a model has fields for, in its sections too."""
    known = {name: values[name] for name in model.model_fields if name in values}
    for name, value in known.items():
        kind: Any = model.model_fields[name].annotation
        section = isinstance(kind, type) and issubclass(kind, BaseModel)
        if section and isinstance(value, Mapping):
            known[name] = _known(value, kind)
    return known


class _Plain(yaml.SafeLoader):
    """YAML of at most `DEPTH` levels; without aliases, which can repeat one another."""

    _depth = 0

    def compose_node(self, *args: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self._refuse("an alias (*): write the value out")
        self._depth += 1
        if self._depth > DEPTH:
            self._refuse(f"more than {DEPTH} levels")
        node = super().compose_node(*args)
        self._depth -= 1
        return node

    def _refuse(self, what: str) -> None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        raise yaml.YAMLError(
            f"line {mark.line + 1}, column {mark.column + 1} has {what}"
        )


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > FILE_SIZE:
            raise SettingsError(
                f"settings file {path} has {human(path.stat().st_size)}, and settings "
                f"take less than {human(FILE_SIZE)}: check --config"
            )
        values = _Plain(path.read_text(encoding="utf-8")).get_single_data()
    except OSError as error:
        raise SettingsError(
            f"settings file {path} cannot be read ({error.strerror}): check --config"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {path} is not YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(
            f"settings file {path} must hold keys and values, such as seed: 1"
        )
    return values


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings laid over one another, key by key; the last has the last word."""
    values: dict[str, Any] = {}
    for layer in layers:
        _merge(values, layer)
    return values


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = merged(value) if isinstance(value, Mapping) else value
