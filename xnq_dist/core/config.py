"""Settings from a file, from ``--set`` and from records; messages about errors."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.settings import Settings

__all__ = [
    "known_settings",
    "load_settings",
    "merged",
    "recorded_settings",
    "validate_settings",
    "values_of",
]

WORDS = {"str": "text", "bool": "true, false", "int": "integer", "float": "number"}
"""Names of types."""

CHECKED = ("value_error", "character", "choice")
"""Types of errors whose message was written for users."""

ONE_EXCHANGE = "states stay in memory, and workers have one way to exchange them"
GONE = {
    "anomalies.reference": "communities are compared with the mean of the others",
    "auto.reference_edges": "graphs of more than 5,000,000 edges are contracted first",
    "benchmark": "adjust estimates to known totals in the tool that has them",
    "columns.node_weight": "every node counts once; give each person or view its node",
    "columns.parent": "list the members of a larger community as a community",
    "features.hashed": "text with more than 20 values is hashed into 32 columns",
    "features.levels": "text with more than 20 values is hashed into 32 columns",
    "fit": "the column quality has one verdict (quality.widths)",
    "input.compression": "it follows from the ending of the name, such as .csv.gz",
    "input.encoding": "write text tables as UTF-8",
    "input.engine": "Arrow reads all tables",
    "input.nulls": "write missing values as empty cells; labels.missing is for labels",
    "input.quote": "quotes are double",
    "input.self_loops": "edges from a node to itself are kept; leave such rows out of "
    "the edge table to drop them",
    "intervals.seed_runs": "intervals have what one run knows",
    "memberships.parents": "list the members of a larger community as a community",
    "cluster.bandwidth": "the plan needs no bandwidth",
    "cluster.protocol": "GPU workers use TCP, encrypted",
    "cluster.slurm.account": "set cluster.slurm.directives = [--account=NAME]",
    "cluster.slurm.interface": "set jobqueue.slurm.interface in Dask's configuration",
    "cluster.slurm.queue": "set cluster.slurm.directives = [--partition=NAME]",
    "cluster.slurm.walltime": "set cluster.slurm.directives = ['--time=4:00:00']",
    "cluster.template": "start workers on Kubernetes with deploy/kubernetes, and set "
    "cluster.kind = address",
    "evaluation.calibrations": "validation chooses from all five",
    "evaluation.dims": "the search draws from 512, 1024, 2048 and 4096; set "
    "reservoir.dim to search with one",
    "evaluation.label_draws": "set evaluate --draws",
    "evaluation.repeats": "the paper's protocol has 100 samples",
    "evaluation.sample_size": "the paper's samples have 500 nodes",
    "embeddings.dtype": "embeddings are float32; embeddings.write = false keeps none",
    "exchange.engine": ONE_EXCHANGE,
    "exchange.states": ONE_EXCHANGE,
    "kdey.bandwidth": "kdey_ml has kernels of standard deviation 0.1",
    "leiden.engine": "the edges and input.memory decide",
    "lineage": "wrap the command in the events of your scheduler",
    "matching.bins": "dys and dmy have histograms of 8 bins",
    "plus.boosting": "validation decides whether boosted trees are used",
    "plus.input_scale": "set reservoir.input_scale",
    "plus.recurrent_scales": "set reservoir.recurrent_scale",
    "plus.smoothing": "class shares among labelled neighbours have a prior of 10 "
    "pseudo-counts",
    "quality.caution_below": "the interval of a small community is wide",
    "quality.narrow": "set quality.widths = [0.15, 0.4]",
    "quality.relative": "quality goes by the width of the interval alone",
    "quality.suppressed_below": "set disclosure.min_size",
    "quality.wide": "set quality.widths = [0.15, 0.4]",
    "reservoir.bias_scale": "the bias is uniform in plus or minus 0.1",
    "reservoir.nonzeros": "a sparse W has 16 non-zeros in each row",
    "reservoir.precision": "GPUs compute in float32",
    "reservoir.rho": "the spectral radius of the adjacency matrix is measured",
    "reservoir.tile": ONE_EXCHANGE,
    "report.width": "the page counts intervals narrower than 30 points as narrow",
    "retention.history_rows": "the table history has up to 1,000,000 rows",
    "retention.quarantine_days": "damaged files are deleted and made again",
    "sinks": "write prevalence.parquet to your store (docs/how-to/recipes.md)",
    "sld.max_iterations": "EM stops after 1,000 iterations",
    "sld.tolerance": "EM stops at a mean absolute change of 0.0001",
    "watch.log": "log lines are text; _status.json of the run directory is JSON",
    "watch.metrics": "read _status.json and published.json of the run directory",
}
"""Settings and sections of earlier versions, and what became of them."""


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
        values = merged(values, _read_yaml(Path(file)))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise SettingsError(
                f"--set {override!r} is not of the form key=value: write it like "
                "--set seed=1"
            )
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise SettingsError(
                f"--set {override[:200]!r}: the value is not YAML: quote it"
            ) from error
        for name in reversed(key.strip().split(".")):
            value = {name: value}
        values = merged(values, value)
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


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings with their present names, as nested mappings."""
    new = merged(values)
    quality, cluster = new.get("quality") or {}, new.get("cluster") or {}
    if "suppressed_below" in quality:
        size = {"min_size": max(quality.pop("suppressed_below"), 1)}
        new["disclosure"] = size | (new.get("disclosure") or {})
    if cluster.get("kind") == "single":
        cluster |= {"kind": "auto", "workers": 1}
    return new


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"settings file {path} cannot be read ({error.strerror}): check --config"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
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
        for key, value in layer.items():
            below = values.get(key)
            if isinstance(value, Mapping):
                below = below if isinstance(below, Mapping) else {}
                value = merged(below, value)
            values[key] = value
    return values


def known_settings(
    model: type[BaseModel], prefix: str = ""
) -> Iterator[tuple[str, FieldInfo]]:
    """Name, such as ``intervals.level``, and definition of every setting."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from known_settings(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def values_of(kind: Any) -> str:
    """The values that a type allows, in words."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return ", ".join(map(str, arguments))
    if origin is typing.Annotated:
        return values_of(arguments[0])
    if kind is type(None):
        return "null"
    if origin is tuple and Ellipsis not in arguments:
        return f"[{', '.join(map(values_of, arguments))}]"
    if origin in (list, tuple):
        return f"list of: {values_of(arguments[0])}"
    if origin is dict:
        return "mapping"
    if arguments:
        return ", ".join(dict.fromkeys(map(values_of, arguments)))
    name = str(kind.__name__)
    return WORDS.get(name, name)


def _names(path: str, value: Any) -> Iterator[str]:
    """Names of the settings in an unknown section, or the unknown name itself."""
    if path in GONE or not isinstance(value, Mapping) or not value:
        yield path
        return
    for name, inner in value.items():
        yield from _names(f"{path}.{name}", inner)


def _unknown(name: str, keys: Iterable[str]) -> str:
    """What became of a setting that there is not, or the one that it resembles."""
    import difflib

    if name in GONE:
        return f"this setting is gone: {GONE[name]}"
    if gone := [became for key, became in GONE.items() if key.startswith(f"{name}.")]:
        return f"this section is gone: {'; '.join(gone)}"
    plain = name.replace("__", ".")
    near = difflib.get_close_matches(plain, keys, n=1, cutoff=0.6)
    if near == [name]:
        section, _, last = name.rpartition(".")
        return f"in a file, write {last} on a line of its own below {section}:"
    return f"unknown setting (did you mean {near[0]}?)" if near else "unknown setting"


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """One message with each invalid key of a model, its value and what is allowed."""
    keys = dict(known_settings(model))
    faults: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for item in error.errors(include_url=False):
        path = ""
        # Pydantic adds the branch of a union to the location: keep the setting's key.
        for part in item["loc"]:
            longer = f"{path}.{part}" if path else str(part)
            known = any(k == longer or k.startswith(longer + ".") for k in keys)
            if path in keys or (not known and item["type"] != "extra_forbidden"):
                break
            path = longer
        if item["type"] == "extra_forbidden":
            for name in _names(path, item["input"]):
                faults.setdefault(name, []).append(_unknown(name, keys))
            continue
        text = item["msg"].removeprefix("Value error, ")
        text = text[:1].lower() + text[1:]
        if path in keys and item["type"] not in CHECKED:
            text = _plain(item["type"], text, keys[path])
        faults.setdefault(path, []).append(text)
        if item["type"] != "value_error":
            values[path] = item["input"]
    sentences = []
    for path, texts in faults.items():
        shown = f" = {values[path]!r}" if path in values else ""
        where = f"{path}{shown}: " if path else ""
        named = dict.fromkeys(filter(None, texts))
        if not named:
            named = {f"allowed: {values_of(keys[path].annotation)}": None}
        sentences.append(where + ", or ".join(named))
    return "settings: " + "; ".join(sentences)


def _plain(kind: str, text: str, field: FieldInfo) -> str:
    """Pydantic's message in plain words; empty if the allowed values say it."""
    if kind.startswith(("greater_than", "less_than")):
        return text.replace("input should", "must")
    if kind.endswith("too_short"):
        return "must not be empty"
    return str(field.description) if kind == "string_pattern_mismatch" else ""
