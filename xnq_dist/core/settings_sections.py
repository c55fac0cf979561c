"""Sections of the settings on tables, methods and clusters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from xnq_dist.core.clusters import CLUSTERS
from xnq_dist.core.section import Section
from xnq_dist.core.sizes import check_size, parse_bytes
from xnq_dist.core.slurm_settings import SlurmSettings

__all__ = [
    "AutoSettings",
    "CheckSettings",
    "ClusterSettings",
    "Code",
    "ColumnSettings",
    "EvaluationSettings",
    "FeatureSettings",
    "InputSettings",
    "KdeySettings",
    "LeidenSettings",
    "MatchingSettings",
    "MembershipSettings",
    "ReadoutSettings",
    "SldSettings",
]

Code = Literal[
    "column-case",
    "community-case",
    "feature-id",
    "feature-label",
    "few-matches",
    "id-spaces",
    "isolated",
    "label-case",
    "label-ids",
    "label-measured",
    "label-mixed",
    "label-null-word",
    "loops",
    "role-other",
    "some-matches",
]
"""Findings of the profile that can be accepted."""
Size = Annotated[str | int, AfterValidator(check_size)]
"""A number of bytes, or a text such as ``2 GiB``."""
SizeOrAuto = Literal["auto"] | Size


class ColumnSettings(Section):
    """Names of the columns in the user's tables."""

    node_id: str = Field("node_id", description="node id in the node table")
    features: str | list[str] | None = Field(
        "auto",
        description="features: one fixed-size-list column, or a list of columns "
        "(numbers, booleans, dates, text); auto: the list column `features` if there "
        "is one, else all columns that no other setting names; null: use the graph "
        "alone",
    )
    label: str = Field(
        "label",
        description="class label in the node table; a null label means unlabelled",
    )
    role: str = Field(
        "role",
        description="optional column that says what a label is used for: `train` or "
        "`calibration`",
    )
    node_weight: str | None = Field(
        None,
        description="column of the node table with each node's weight (persons, views, "
        "followers): prevalence becomes a share of the weight (quantifier=auto); null: "
        "every node counts once",
    )
    label_weight: str | None = Field(
        None,
        description="inclusion weight of a labelled node: 1 / the probability that it "
        "was chosen for labelling; needs labels.drawn=weighted",
    )
    src: str = Field("src", description="source node in the edge table")
    dst: str = Field("dst", description="target node in the edge table")
    weight: str = Field("weight", description="optional edge weight in the edge table")
    community: str = Field(
        "community", description="community in the memberships table"
    )
    parent: str = Field(
        "parent",
        description="optional: parent of the community in the memberships table",
    )
    member: str = Field("node_id", description="node id in the memberships table")

    @model_validator(mode="after")
    def _different(self) -> ColumnSettings:
        pairs = (("src", "dst"), ("member", "community"), ("node_id", "label"))
        for first, second in pairs:
            if (name := getattr(self, first)) == getattr(self, second):
                raise ValueError(
                    f"columns.{first} and columns.{second} both name {name!r}: give "
                    "each its own column"
                )
        return self


class InputSettings(Section):
    """How the tables are read."""

    directed: bool = Field(
        False,
        description="true: edges have a direction; false: the reverse of every edge is "
        "added where it is missing",
    )
    self_loops: Literal["keep", "drop"] = Field(
        "keep", description="what to do with edges from a node to itself"
    )
    duplicates: Literal["drop", "sum"] = Field(
        "drop",
        description="what to do with duplicate edges: drop keeps one, sum adds their "
        "weights",
    )
    unknown_nodes: Literal["error", "drop"] = Field(
        "error",
        description="what to do with edges and memberships of nodes that are not in "
        "the node table",
    )
    memory: Size = Field(
        "1 GiB",
        description="memory for sorting the edges, on CPU or GPU, and for Leiden",
    )

    engine: Literal["auto", "cpu", "cudf"] = Field(
        "auto",
        description="engine that reads the edge table (same result); auto: cudf with "
        "cluster.kind=cuda where it is installed, else cpu",
    )

    @property
    def memory_bytes(self) -> int:
        """Memory for the edge sort in bytes."""
        return parse_bytes(self.memory)


class FeatureSettings(Section):
    """How feature columns are prepared for the reservoir."""

    scale: Literal["auto", "robust", "none"] = Field(
        "auto",
        description="auto: standardise named columns, and the columns of a list whose "
        "values are out of the ordinary range; robust: standardise all columns; none: "
        "use the unchanged values of the table",
    )
    levels: int = Field(
        20,
        ge=1,
        le=10_000,
        description="number of values up to which a text column becomes one column of "
        "0 and 1 for each value",
    )
    hashed: int = Field(
        32,
        ge=1,
        le=10_000,
        description="number of columns that text with more values is hashed into",
    )


class ReadoutSettings(Section):
    """Logistic readout and calibration."""

    C: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["select"] = Field(
        "select",
        description="inverse L2 strength; select: chosen by out-of-fold log-loss",
    )
    calibration: Literal["bcts", "platt", "platt_logit", "temperature", "none"] = Field(
        "bcts", description="calibration method of the posteriors"
    )
    folds: int = Field(5, ge=2, le=100, description="number of cross-fitting folds")
    memory: Size = Field(
        "2 GiB", description="maximum memory for the embeddings of labelled nodes"
    )

    @property
    def memory_bytes(self) -> int:
        """Maximum bytes of the embeddings of labelled nodes."""
        return parse_bytes(self.memory)


class SldSettings(Section):
    """Stopping rule of the EM quantifiers (sld, sld_bcts)."""

    tolerance: float = Field(
        1e-4, gt=0, lt=1, description="mean absolute change at which EM stops"
    )
    max_iterations: int = Field(
        1000, ge=1, description="maximum number of EM iterations"
    )


class AutoSettings(Section):
    """The quantifier auto."""

    reference_edges: int = Field(
        5_000_000,
        ge=0,
        description="number of edges up to which Leiden (all edges in one process) "
        "finds the groups that intervals are learnt on; larger graphs use label "
        "propagation on the workers",
    )


class MembershipSettings(Section):
    """How the communities were formed."""

    drawn: Literal["unknown", "by_class"] = Field(
        "unknown",
        description="how communities were formed. by_class: membership depends on the "
        "class alone, so quantifier=auto uses SLD; unknown: it uses the mean posterior",
    )
    parents: str | None = Field(
        None,
        description="table of columns.community and columns.parent, the parent of each "
        "community; a parent has all members of its communities; null: the column "
        "columns.parent of the memberships table, if present",
    )


class CheckSettings(Section):
    """What the profile of the tables (`xnq-dist profile`) accepts."""

    accept: tuple[Code, ...] = Field(
        (),
        description="findings to accept: a refusal becomes a note, a warning is left "
        "out; each finding's text starts with its code",
    )


class MatchingSettings(Section):
    """Histograms of posteriors (dys, dmy; hdy has its own)."""

    bins: int = Field(
        8, ge=2, le=1024, description="number of histogram bins (dys, dmy)"
    )


class KdeySettings(Section):
    """Kernel densities of posteriors (kdey_ml)."""

    bandwidth: float = Field(
        0.1,
        ge=0.01,
        le=10,
        description="standard deviation of the Gaussian kernel (kdey_ml)",
    )


class LeidenSettings(Section):
    """Community detection."""

    resolution: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="resolution of the modularity; larger values give more communities",
    )
    engine: Literal["auto", "igraph", "streamed", "cugraph"] = Field(
        "auto",
        description="igraph and cugraph hold all edges, cugraph on a GPU, with other "
        "communities each time; streamed leaves them on disk and contracts the graph "
        "until Leiden fits input.memory; auto: cugraph with cluster.kind=cuda where it "
        "is installed, else igraph if all edges fit input.memory, else streamed",
    )


class EvaluationSettings(Section):
    """The protocol of `evaluate`."""

    dims: tuple[Annotated[int, Field(ge=1, le=65536)], ...] = Field(
        (512, 1024, 2048, 4096),
        min_length=1,
        description="reservoir dimensions that the search chooses from",
    )
    sample_size: int = Field(500, ge=1, description="nodes in a sample")
    repeats: int = Field(
        100,
        ge=1,
        description="samples per prevalence (two classes) or in total (more classes)",
    )
    calibrations: tuple[
        Literal["bcts", "platt", "platt_logit", "temperature", "none"], ...
    ] = Field(
        ("bcts", "platt", "platt_logit", "temperature", "none"),
        min_length=1,
        description="calibrations that validation chooses from",
    )
    label_draws: int = Field(
        3,
        ge=1,
        description="number of random draws of the labelled nodes (--communities)",
    )


class ClusterSettings(Section):
    """Where the work runs."""

    kind: Annotated[str, AfterValidator(CLUSTERS.check)] = Field(
        "auto",
        description="where workers run",
        json_schema_extra=CLUSTERS.offer,
    )
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="number of workers (local, slurm); 1 with kind=auto: this process",
    )
    threads: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="threads of each worker (local, slurm)"
    )
    address: str | None = Field(
        None, description="address of the scheduler (kind=address)"
    )
    tls_ca: str | None = Field(
        None,
        description="certificate file of the authority that signed the cluster's "
        "certificates (for a tls:// address)",
    )
    tls_cert: str | None = Field(
        None, description="certificate file of this client (for a tls:// address)"
    )
    tls_key: str | None = Field(
        None, description="key file of this client (for a tls:// address)"
    )
    memory_limit: SizeOrAuto = Field(
        "auto", description="memory of each worker (local, slurm), such as '8 GiB'"
    )
    timeout: float = Field(
        60.0,
        gt=0,
        description="seconds to wait for the scheduler and the first worker, and for a "
        "sign of life later on",
    )
    device_memory: SizeOrAuto = Field(
        "auto", description="GPU memory that each worker may use"
    )
    protocol: Literal["auto", "tcp", "ucx"] = Field(
        "auto",
        description="protocol between GPU workers (cuda); auto: TCP, encrypted; ucx: "
        "faster, but any user who can reach the machine can connect",
    )
    slurm: SlurmSettings = SlurmSettings()

    @model_validator(mode="after")
    def _consistent(self) -> ClusterSettings:
        record = CLUSTERS.record_of(self.kind)
        if record.queued and "auto" in (self.workers, self.memory_limit):
            raise ValueError(
                f"cluster.kind = {self.kind} needs cluster.workers and "
                "cluster.memory_limit: set the number of jobs, and the memory of each "
                "worker"
            )
        running = record.running
        if running and not self.address:
            raise ValueError(f"cluster.kind = {self.kind} needs cluster.address")
        if not running and self.address:
            raise ValueError(
                f"cluster.address is set but cluster.kind = {self.kind}: "
                "set cluster.kind = address"
            )
        address = self.address or ""
        if "@" in address:
            raise ValueError(
                "cluster.address takes no user name or password: set it to "
                "tls://host:port, and cluster.tls_ca, tls_cert and tls_key to the "
                "certificates"
            )
        files = (self.tls_ca, self.tls_cert, self.tls_key)
        if any(files) and not all(files):
            raise ValueError(
                "cluster.tls_ca, cluster.tls_cert and cluster.tls_key belong together: "
                "set all three"
            )
        if any(files) and not address.startswith("tls://"):
            raise ValueError(
                "cluster.tls_ca, tls_cert and tls_key are for a running cluster: set "
                "cluster.kind = address and cluster.address = tls://host:port (local "
                "clusters create their credentials)"
            )
        return self
