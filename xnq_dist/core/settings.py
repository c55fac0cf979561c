"""All settings of a run, by meaning.

`Settings` holds the sections (`core.sections`). The YAML file and ``--set`` use these
names. `core.config` resolves them once; they are frozen and passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.records import METHODS, QUANTIFIERS, RECURRENT_SCALES
from xnq_dist.core.sections import (
    AnomalySettings,
    AutoSettings,
    CheckpointSettings,
    CheckSettings,
    ClusterSettings,
    ColumnSettings,
    DisclosureSettings,
    EmbeddingSettings,
    ExchangeSettings,
    FeatureSettings,
    InputSettings,
    IntervalSettings,
    LabelSettings,
    LeidenSettings,
    MembershipSettings,
    QualitySettings,
    ReadoutSettings,
    ReportSettings,
    ReservoirSettings,
    RetentionSettings,
    Section,
    WatchSettings,
)

__all__ = ["Settings"]


class Settings(Section):
    """All settings of a run; the YAML file and ``--set`` use these names."""

    seed: int = Field(0, ge=0, lt=2**63)
    """seed of every random stream"""
    backend: Literal["auto", "cpu", "gpu"] = "auto"
    """processor for the kernels; auto: the GPU if every worker has one"""
    partitions: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = "auto"
    """number of parts of the graph; auto: one for each worker, more if memory is not
    enough"""
    partitioner: Literal["auto", "metis", "stream", "contiguous"] = "auto"
    """how nodes are assigned to partitions"""
    method: Annotated[str, AfterValidator(METHODS.check)] = Field(
        "xnq+", json_schema_extra=METHODS.offer
    )
    """how posteriors are made"""
    quantifier: Annotated[str, AfterValidator(QUANTIFIERS.check)] = Field(
        "auto",
        json_schema_extra=lambda schema: schema.update(enum=[*QUANTIFIERS]),
    )
    """estimator of a community's prevalence; auto: known labels, and posteriors of the
    other members moved by them, with intervals; hdy, dys: for two classes only"""
    labelled: Literal["count", "exclude"] = "count"
    """count: labelled nodes count with their label, other nodes are estimated; exclude:
    estimate only the unlabelled nodes"""
    communities: str = Field("auto", pattern=r"^(auto|given|leiden|column:.+)$")
    """given: from the memberships table; column:NAME: from a column of the node table;
    leiden: detected; auto: given if there is a memberships table, else leiden"""
    columns: ColumnSettings = ColumnSettings()
    features: FeatureSettings = FeatureSettings()
    input: InputSettings = InputSettings()
    reservoir: ReservoirSettings = ReservoirSettings()
    exchange: ExchangeSettings = ExchangeSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    readout: ReadoutSettings = ReadoutSettings()
    labels: LabelSettings = LabelSettings()
    checks: CheckSettings = CheckSettings()
    memberships: MembershipSettings = MembershipSettings()
    auto: AutoSettings = AutoSettings()
    quality: QualitySettings = QualitySettings()
    disclosure: DisclosureSettings = DisclosureSettings()
    intervals: IntervalSettings = IntervalSettings()
    anomalies: AnomalySettings = AnomalySettings()
    leiden: LeidenSettings = LeidenSettings()
    cluster: ClusterSettings = ClusterSettings()
    retention: RetentionSettings = RetentionSettings()
    report: ReportSettings = ReportSettings()
    watch: WatchSettings = WatchSettings()
    scratch: str | None = None
    """local folder for temporary files; null: that of the system"""

    def faults(self) -> Iterator[str]:
        """Settings of several sections that do not go together."""
        method, folds = METHODS[self.method], self.readout.folds
        scales, dim = self.reservoir.recurrent_scale, self.reservoir.dim
        what = "reservoir.recurrent_scale"
        if method.second_stage and scales == "select":
            scales, what = RECURRENT_SCALES, "method = xnq+"
        if isinstance(scales, tuple) and len(scales) > dim:
            yield (
                f"{what} has {len(scales)} scales for {dim} units: set a larger "
                "reservoir.dim"
            )
        if folds < 3 and method.second_stage:
            yield (
                f"readout.folds = {folds} leaves no fold to learn from when two are "
                "held out: set 3 or more, or method = xnq"
            )
        if self.columns.scores and not method.second_stage:
            yield (
                "columns.scores needs method = xnq+, the readout that takes scores: "
                "set method = xnq+, or name these columns in columns.features"
            )
        if self.communities == f"column:{self.columns.node_id}":
            yield (
                f"communities = {self.communities} is the column of node ids: name "
                "that of the communities"
            )
        weighted = self.labels.drawn == "weighted"
        if weighted != (self.columns.label_weight is not None):
            yield (
                "labels.drawn = weighted and columns.label_weight go together: set "
                "both, or neither"
            )
        if weighted and not method.second_stage:
            yield (
                "labels.drawn = weighted needs method = xnq+, the readout that takes "
                "weights: set method = xnq+, or labels.drawn = unknown"
            )
        on_gpu = CLUSTERS[self.cluster.kind].gpu
        if self.backend == "cpu" and on_gpu:
            yield "cluster.kind = cuda needs backend = auto or gpu"
        if self.exchange.on_cpus and (self.backend == "gpu" or on_gpu):
            yield (
                "exchange.dtype = float16 needs CPUs: set backend = cpu, or "
                "exchange.dtype = float32"
            )
