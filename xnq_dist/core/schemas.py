"""Every table that is written or read back: columns, types, meaning, version.

Checked on write (`conform`) and on read (`check`): a table that does not fit its
entry here never reaches a user.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from xnq_dist.core.errors import StageError

__all__ = ["RUN_ID", "TABLES", "Column", "TableSchema", "check", "conform"]


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    kind: str
    """``id`` (int64 or string, the user's own), an Arrow type's name, or
    ``vector<float32>``, ``vector<float>`` for a fixed-size list."""
    meaning: str
    nullable: bool = False

    def accepts(self, kind: pa.DataType) -> bool:
        """Whether a column of this Arrow type fits."""
        if self.kind == "id":
            return kind in (pa.int64(), pa.string())
        if self.kind.startswith("vector<"):
            if not pt.is_fixed_size_list(kind):
                return False
            value = kind.value_type
            if self.kind == "vector<float>":
                return bool(pt.is_float32(value) or pt.is_float16(value))
            return bool(pt.is_float32(value))
        return str(kind) == self.kind


@dataclass(frozen=True)
class TableSchema:
    """A table's entry in the registry."""

    name: str
    version: int
    columns: tuple[Column, ...]
    meaning: str


def _table(name: str, meaning: str, *columns: Column, version: int = 1) -> TableSchema:
    return TableSchema(name, version, columns, meaning)


_NODE_ID = Column("node_id", "id", "the user's own node id")

_WEIGHTS = (
    Column(
        "weight",
        "double",
        "sum of the node weights that prevalence is of; null: every node counts once",
        nullable=True,
    ),
    Column(
        "weight_estimated",
        "double",
        "sum of the node weights of those whose class is estimated",
        nullable=True,
    ),
    Column(
        "n_effective",
        "double",
        "effective number of nodes: squared sum of node weights over sum of their "
        "squares",
        nullable=True,
    ),
)

_BENCHMARKED = (
    Column(
        "benchmarked",
        "double",
        "proportion of the class, raked to the benchmarks; null: no benchmarks",
        nullable=True,
    ),
    Column("benchmarked_lower", "double", "lower end of its interval", nullable=True),
    Column("benchmarked_upper", "double", "upper end of its interval", nullable=True),
)

_ESTIMATE = (
    Column("lower", "double", "lower end of the interval", nullable=True),
    Column("upper", "double", "upper end of the interval", nullable=True),
    Column("se", "double", "standard error", nullable=True),
    Column("cv", "double", "standard error over prevalence", nullable=True),
    Column(
        "quality",
        "string",
        "publishable, caution, not publishable or suppressed; null: no interval to "
        "judge by",
        nullable=True,
    ),
    *_BENCHMARKED,
    Column("method", "string", "the quantifier"),
)


TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        _table(
            "graph_nodes",
            "owned nodes of one partition, in local row order",
            _NODE_ID,
            Column("index", "int64", "rank of the node id among all node ids"),
            Column("features", "vector<float32>", "input features"),
            version=2,
        ),
        _table(
            "feature_scaling",
            "how raw feature columns became input features, one row per feature",
            Column("feature", "string", "name of the column, or column[position]"),
            Column(
                "kind",
                "string",
                "kept: as in the table; two values: 0 for the common one, 1 for the "
                "rare one; robust: asinh((x - center) / spread); constant: 0",
            ),
            Column("center", "double", "median, or the common one of two values"),
            Column(
                "spread",
                "double",
                "robust standard deviation, or the distance of two values; negative: "
                "the sign is turned round",
            ),
            Column("gain", "double", "what the result is multiplied by"),
        ),
        _table(
            "node_labels",
            "labels of the owned nodes of one partition, in local row order",
            Column("index", "int64", "rank of the node id among all node ids"),
            Column("label", "int32", "class code; null: unlabelled", nullable=True),
            Column("role", "string", "train, calibration or null", nullable=True),
        ),
        _table(
            "embeddings",
            "state of every node after the last superstep",
            _NODE_ID,
            Column("embedding", "vector<float>", "state, d' values in [-1, 1]"),
        ),
        _table(
            "posteriors",
            "calibrated class probabilities of every node",
            _NODE_ID,
            Column("posterior", "vector<float32>", "probability of each class"),
            Column(
                "out_of_fold",
                "bool",
                "the node is labelled and its label had no part in the readout "
                "that made this row",
            ),
        ),
        _table(
            "prevalence",
            "one row per community and class",
            Column("community", "id", "the community's name"),
            Column("parent", "id", "the community that it is part of", nullable=True),
            Column("class", "string", "the class, as text"),
            Column("n_nodes", "int64", "members in the graph"),
            Column("n_labelled", "int64", "members with a known label"),
            Column("n_estimated", "int64", "members whose class is estimated"),
            *_WEIGHTS,
            Column(
                "prevalence",
                "double",
                "proportion of the class; null: nothing to estimate from",
                nullable=True,
            ),
            *_ESTIMATE,
            Column("iterations", "int32", "EM iterations; 0 for closed forms"),
            Column("converged", "bool", "whether the estimator's stopping rule held"),
            Column(
                "fit_pvalue",
                "double",
                "of labelled members' classes that agree with their posteriors; null: "
                "no such member",
                nullable=True,
            ),
            Column(
                "flagged",
                "bool",
                "the expected error is above fit.error; null: no interval",
                nullable=True,
            ),
            Column("note", "string", "what to know of this row", nullable=True),
            version=3,
        ),
        _table(
            "totals",
            "the whole graph, one row per class; the last columns say how the labelled "
            "nodes were chosen, null: not tested",
            Column("scope", "string", "graph: all nodes"),
            Column("class", "string", "the class, as text"),
            Column("n_nodes", "int64", "nodes"),
            Column("n_labelled", "int64", "nodes with a known label"),
            Column("n_estimated", "int64", "nodes whose class is estimated"),
            *_WEIGHTS,
            Column("prevalence", "double", "proportion of the class", nullable=True),
            *_ESTIMATE,
            Column("drawn", "string", "labels.drawn, as set"),
            Column(
                "verdict",
                "string",
                "none, class, place or both: what shows in the choice of the labels",
                nullable=True,
            ),
            Column(
                "pvalue", "double", "of no choice of the labels by class", nullable=True
            ),
            Column(
                "bias",
                "double",
                "log-factor by which the class has more labels than the mean class",
                nullable=True,
            ),
            Column(
                "detectable_factor",
                "double",
                "least factor, against the other classes, that would have been found",
                nullable=True,
            ),
            Column(
                "weight_by_class",
                "double",
                "weight of the answer for labels chosen by class; null: it plays no "
                "part",
                nullable=True,
            ),
            *(
                Column(name, "double", meaning, nullable=True)
                for name, meaning in (
                    ("if_random", "proportion if labels are a random sample"),
                    ("if_random_lower", "lower end of its interval"),
                    ("if_random_upper", "upper end"),
                    ("if_by_class", "proportion if labels were chosen by class"),
                    ("if_by_class_lower", "lower end of its interval"),
                    ("if_by_class_upper", "upper end"),
                )
            ),
            version=3,
        ),
        _table(
            "evidence",
            "what labels and posteriors show, one row per community and class",
            Column("community", "int64", "place of the community in prevalence"),
            Column("class", "string", "the class, as text"),
            Column("known", "int64", "labelled members of the class"),
            Column(
                "scores",
                "double",
                "share of the class by the unlabelled members' posteriors alone, may "
                "lie outside [0, 1]; null: they show nothing",
                nullable=True,
            ),
            Column(
                "error",
                "double",
                "its standard error but for the chance that draws the members' classes",
                nullable=True,
            ),
            Column("skew", "double", "third central moment of the same", nullable=True),
        ),
        _table(
            "group_sums",
            "sums over communities by group of the graph's own partitions, for "
            "covariances",
            Column("community", "int64", "place of the community in prevalence"),
            Column("group", "int32", "the group"),
            Column(
                "weights",
                "vector<float32>",
                "sum of f (1 - f) over the unlabelled members in the group, a class "
                "against the rest: the second of two classes, else each; with node "
                "weights u the sum of u f (1 - f)",
            ),
            Column(
                "squares",
                "vector<float32>",
                "sum of u^2 f (1 - f); null without node weights",
                nullable=True,
            ),
            version=3,
        ),
        _table(
            "label_plan",
            "nodes to label next, one row per node",
            _NODE_ID,
            Column(
                "community",
                "id",
                "the community with the widest interval that the node is in, of those "
                "whose intervals matter; null: none",
                nullable=True,
            ),
            Column("stratum", "int64", "nodes of a stratum have one probability"),
            Column("inclusion_probability", "double", "of the node being chosen"),
            Column("label_weight", "double", "1 / inclusion_probability"),
        ),
        _table(
            "scenarios",
            "both answers for the unlabelled members, one row per community and class; "
            "there where the answer is a mixture of them",
            Column("community", "int64", "place of the community in prevalence"),
            Column("code", "int32", "place of the class"),
            Column("if_random", "double", "labels are a random sample", nullable=True),
            Column("if_by_class", "double", "labels chosen by class", nullable=True),
        ),
        _table(
            "anomalies",
            "every community compared with the rest, one row per community and class",
            Column("community", "id", "the community's name"),
            Column("class", "string", "the class, as text"),
            Column("n_nodes", "int64", "members in the graph"),
            Column("prevalence", "double", "proportion of the class", nullable=True),
            Column("reference", "double", "what it is compared with", nullable=True),
            Column("effect", "double", "prevalence less reference", nullable=True),
            Column("lower", "double", "lower end of the effect", nullable=True),
            Column("upper", "double", "upper end", nullable=True),
            Column("pvalue", "double", "of no difference but chance", nullable=True),
            Column(
                "qvalue",
                "double",
                "rate of false discoveries up to this row",
                nullable=True,
            ),
            Column(
                "anomalous",
                "bool",
                "q-value at or below anomalies.rate; null: not compared",
                nullable=True,
            ),
            Column(
                "rank_effect",
                "int64",
                "place by size of the effect within the class, from 1",
                nullable=True,
            ),
            Column(
                "rank_prevalence",
                "int64",
                "place by prevalence within the class, from 1",
                nullable=True,
            ),
            version=2,
        ),
        _table(
            "changes",
            "communities now and in earlier results, one row per community and class",
            Column("community", "id", "the community's name"),
            Column("class", "string", "the class, as text"),
            Column("status", "string", "both, new or gone"),
            Column("n_nodes", "int64", "members now", nullable=True),
            Column("n_nodes_before", "int64", "members then", nullable=True),
            Column("prevalence", "double", "proportion now", nullable=True),
            Column("before", "double", "proportion then", nullable=True),
            Column("effect", "double", "now less then", nullable=True),
            Column("lower", "double", "lower end of the effect", nullable=True),
            Column("upper", "double", "upper end", nullable=True),
            Column("pvalue", "double", "of no change", nullable=True),
            Column(
                "qvalue",
                "double",
                "rate of false discoveries up to this row",
                nullable=True,
            ),
            Column(
                "changed",
                "bool",
                "q-value at or below anomalies.rate; null: not compared",
                nullable=True,
            ),
            Column(
                "rank_effect",
                "int64",
                "place by size of the effect within the class, from 1",
                nullable=True,
            ),
        ),
        _table(
            "communities",
            "detected communities",
            Column("community", "id", "the community's number"),
            _NODE_ID,
        ),
        _table(
            "partitions",
            "quality of the cut, one row per partition",
            Column("partition", "int32", "number of the partition"),
            Column("owned", "int64", "nodes it computes"),
            Column("halo", "int64", "remote in-neighbours it holds a copy of"),
            Column("edges", "int64", "edges into owned nodes"),
            Column("bytes", "int64", "bytes of halo it receives a superstep"),
        ),
        _table(
            "results",
            "evaluation: one row per figure",
            Column("dataset", "string", "name of the task"),
            Column("method", "string", "xnq, lr, wvrn, ..."),
            Column("embedder", "string", "what makes the scores"),
            Column("quantifier", "string", "what makes prevalences of them"),
            Column("calibration", "string", "what makes posteriors of them"),
            Column("fold", "int32", "number of the fold"),
            Column("draw", "int32", "number of the configuration"),
            Column("label_share", "double", "share of the fold's labels kept"),
            Column("split", "string", "validation or test"),
            Column("metric", "string", "ae or rae"),
            Column("value", "double", "mean over the samples"),
            Column(
                "selected",
                "bool",
                "the draw and calibration that validation chose: one per method, "
                "quantifier, fold and label share",
            ),
            Column("seconds", "double", "wall time to make the scores", nullable=True),
            Column("peak_memory", "int64", "bytes, of the worker", nullable=True),
        ),
        _table(
            "configurations",
            "evaluation: hyperparameters of every draw",
            Column("dataset", "string", "name of the task"),
            Column("method", "string", "the method"),
            Column("draw", "int32", "number of the configuration"),
            Column("parameter", "string", "name of the hyperparameter"),
            Column("value", "string", "as JSON"),
        ),
        _table(
            "estimates",
            "evaluation: selected configurations on the test samples",
            Column("dataset", "string", "name of the task"),
            Column("method", "string", "the method"),
            Column("quantifier", "string", "the quantifier"),
            Column("fold", "int32", "number of the fold"),
            Column("label_share", "double", "share of the fold's labels kept"),
            Column("sample", "int32", "number of the sample in the fold"),
            Column("class", "string", "the class, as text"),
            Column("true", "double", "its prevalence in the sample"),
            Column("estimate", "double", "as estimated"),
        ),
        _table(
            "community_results",
            "evaluation on communities: mean figures of one estimator on the sets of "
            "one kind, size and labelling in one draw",
            Column("dataset", "string", "name of the task"),
            Column("graph_family", "string", "graphs alike, left out together"),
            Column("method", "string", "what makes the posteriors"),
            Column("design", "string", "which nodes have labels"),
            Column("label_share", "double", "share of the labels, as requested"),
            Column("draw", "int32", "number of the draw of labels"),
            Column("labels", "int32", "labels shown"),
            Column("communities", "string", "kind of communities"),
            Column("estimator", "string", "quantifier or trivial estimator"),
            Column("sizes", "string", "unlabelled members from-to"),
            Column("labelled", "bool", "the sets have labelled members"),
            Column("sets", "int32", "sets that the figures are means of"),
            Column("ae", "double", "absolute error, mean over classes"),
            Column("rae", "double", "relative absolute error"),
            Column("bias", "double", "estimate less truth, last class"),
            Column(
                "coverage",
                "double",
                "share of the intervals with the truth; null: no intervals",
                nullable=True,
            ),
            Column("width", "double", "of the intervals", nullable=True),
            Column(
                "flagged",
                "int32",
                "sets whose expected error is above fit.error; null: no intervals",
                nullable=True,
            ),
            Column(
                "flagged_ae",
                "double",
                "their absolute error; null: none is flagged",
                nullable=True,
            ),
            version=3,
        ),
        _table(
            "benchmarks",
            "one row per measurement",
            Column("benchmark", "string", "name of the benchmark"),
            Column("size", "string", "small or full"),
            Column("case", "string", "the work: how many of what"),
            Column("quantity", "string", "time, rate, memory, ..."),
            Column("what", "string", "xnq_dist, or the peer that did the same work"),
            Column("value", "double", "as measured"),
            Column("unit", "string", "of the value"),
            Column("repeat", "int32", "number of the repeat"),
            Column("note", "string", "what to know of this row", nullable=True),
        ),
        _table(
            "generated_nodes",
            "node table of a generated graph",
            _NODE_ID,
            Column("features", "vector<float32>", "input features"),
            Column("label", "int64", "class; null: unlabelled", nullable=True),
        ),
        _table(
            "generated_edges",
            "edge table of a generated graph",
            Column("src", "id", "one end"),
            Column("dst", "id", "the other end"),
        ),
        _table(
            "memberships",
            "community memberships",
            Column("community", "id", "the community's name"),
            _NODE_ID,
        ),
        _table(
            "truth",
            "true class of every node of a generated graph",
            _NODE_ID,
            Column("label", "int64", "class"),
        ),
    )
}


RUN_ID = Column(
    "run_id", "string", "the results that the row is of; in published tables only"
)


def check(
    schema: pa.Schema, name: str, where: str, columns: Collection[str] | None = None
) -> None:
    """Refuse a table read back that does not fit its entry.

    Parameters
    ----------
    columns
        Those that are needed, so that a table of an earlier version may lack others;
        None: all.

    Raises
    ------
    StageError
        Naming the file and every column at fault.
    """
    faults = []
    for column in TABLES[name].columns:
        if columns is not None and column.name not in columns:
            continue
        at = schema.get_field_index(column.name)
        if at < 0:
            faults.append(f"column {column.name!r} is missing")
        elif not column.accepts(schema.field(at).type):
            faults.append(
                f"column {column.name!r} is {schema.field(at).type}, not {column.kind}"
            )
    if faults:
        raise StageError(
            f"{where} is not a {name!r} table: {'; '.join(faults)}; run again with "
            "--overwrite to make it anew"
        )


def conform(table: pa.Table, name: str, where: str, run_id: str = "") -> pa.Table:
    """The table with exactly the registered columns in order, checked for nulls.

    The schema's name and version go into the file's metadata. A published table gets
    the `run_id` of its results, as its last column and in the metadata.
    """
    entry = TABLES[name]
    check(table.schema, name, where)
    extra = set(table.column_names) - {column.name for column in entry.columns}
    if extra:
        raise StageError(f"{where}: columns {sorted(extra)} are not in {name!r}")
    for column in entry.columns:
        if not column.nullable and table[column.name].null_count:
            raise StageError(f"{where}: column {column.name!r} has nulls")
        if column.kind == "double":
            bad = pc.any(pc.invert(pc.is_finite(table[column.name]))).as_py()
            if bad:
                raise StageError(f"{where}: column {column.name!r} is not finite")
    metadata = dict(table.schema.metadata or {})
    metadata[b"xnq_dist.table"] = name.encode()
    metadata[b"xnq_dist.version"] = str(entry.version).encode()
    ordered = table.select([column.name for column in entry.columns])
    if run_id:
        metadata[b"xnq_dist.run_id"] = run_id.encode()
        field = pa.field(RUN_ID.name, pa.string(), nullable=False)
        ordered = ordered.append_column(field, pa.repeat(run_id, len(ordered)))
    return ordered.replace_schema_metadata(metadata)
