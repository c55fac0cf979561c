"""Settings from a file, from ``--set`` and from records; messages about errors."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from xnq_dist.core.errors import SettingsError
from xnq_dist.core.settings import Settings

__all__ = [
    "known_settings",
    "load_settings",
    "meaning_of",
    "merged",
    "nested",
    "recorded_settings",
    "removed_settings",
    "validate_settings",
    "values_of",
]

WORDS = {
    "str": "text",
    "bool": "true, false",
    "int": "integer",
    "float": "number",
    "NoneType": "null",
}
"""Names of types."""

PLAIN = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=e|E))([eE][-+]?[0-9]+)?",
        "-+.0123456789",
    ),
)
"""What a plain word of YAML is if it is not text, and its first characters."""

SAID = ("value_error", "greater_than", "less_than")
"""Beginnings of the types of errors whose message says what is allowed."""


class Loader(yaml.SafeLoader):
    """YAML whose words are as written: yes, off, 01, 0x10 and dates are text.

    A key that occurs twice in a mapping is an error.
    """

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node."""
        keys = [str(key.value) for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1} - {"<<"}:
            what = f"{', '.join(sorted(twice))}: named twice"
            raise yaml.MarkedYAMLError(None, None, what, node.start_mark)
        return dict(super().construct_mapping(node, deep))


Loader.yaml_implicit_resolvers = {"<": Loader.yaml_implicit_resolvers["<"]}
for _tag, _form, _first in PLAIN:
    Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}",
        re.compile(f"^(?:{_form})$"),
        [*_first],
    )


def load_settings(
    files: Iterable[str | Path] = (),
    overrides: Iterable[str] = (),
    base: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from YAML files and ``a.b=value`` overrides; later ones win.

    Parameters
    ----------
    files
        YAML files with the names of `Settings`.
    overrides
        Texts ``key.key=value``; the value is read as YAML.
    base
        Values that the files and `overrides` replace, as nested mappings.

    Raises
    ------
    SettingsError
        When a file cannot be read, or any key is unknown or out of range; the
        message names every key at fault.

    Examples
    --------
    >>> load_settings(overrides=["reservoir.dim=64"]).reservoir.dim
    64
    """
    layers = [base or {}, *(_read_yaml(Path(file)) for file in files)]
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise SettingsError(
                f"--set {override!r} is not of the form key=value: write it like "
                "--set seed=1"
            )
        try:
            value = yaml.load(text, Loader)  # noqa: S506 (a SafeLoader)
        except (yaml.YAMLError, RecursionError) as error:
            raise SettingsError(
                f"--set {override[:200]!r}: the value is not YAML: quote it"
            ) from error
        if key.strip() in dict(known_settings(Settings)):
            # A mapping, such as `labels.prior`, replaces one before.
            layers.append(nested(key.strip(), None))
        layers.append(nested(key.strip(), value))
    return validate_settings(merged(*layers))


def validate_settings(
    values: Mapping[str, Any], unknown: Literal["forbid", "ignore"] = "forbid"
) -> Settings:
    """`Settings` from nested mappings; `SettingsError` names every key at fault."""
    try:
        return Settings.model_validate(dict(values), extra=unknown)
    except ValidationError as error:
        raise SettingsError(explain(error)) from error


def recorded_settings(
    values: Mapping[str, Any], overrides: Iterable[str] = ()
) -> Settings:
    """Settings that a run directory records, with `overrides` as in `load_settings`.

    Those that this version does not have are left out.
    """
    known = validate_settings(values, unknown="ignore").model_dump(mode="json")
    return load_settings(base=known, overrides=overrides)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.load(text, Loader)  # noqa: S506 (a SafeLoader)
    except OSError as error:
        raise SettingsError(
            f"settings file {path} cannot be read ({error.strerror}): check --config"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"settings file {path} is not YAML: {error}") from error
    if not isinstance(values, dict | None):
        raise SettingsError(
            f"settings file {path} must hold keys and values, such as seed: 1"
        )
    return merged(*(nested(str(key), value) for key, value in (values or {}).items()))


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings laid over one another, key by key; the last has the last word."""
    values: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = values.get(key)
            if isinstance(value, Mapping) and isinstance(below, Mapping):
                value = merged(below, value)
            values[key] = value
    return values


def nested(name: str, value: Any) -> dict[str, Any]:
    """The mappings of one setting, by its name such as ``intervals.level``."""
    for key in reversed(name.split(".")):
        value = {key: value}
    return dict(value)


def known_settings(
    model: type[BaseModel], prefix: str = ""
) -> Iterator[tuple[str, FieldInfo]]:
    """Name, such as ``intervals.level``, and definition of every setting."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from known_settings(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{field.alias or name}", field


def meaning_of(setting: FieldInfo) -> str:
    """What a setting is, on one line: the text below it in `core.settings`."""
    return " ".join(str(setting.description).split())


def values_of(kind: Any) -> str:
    """The values that a type allows, in words."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return ", ".join(map(str, arguments))
    if origin is typing.Annotated:
        return values_of(arguments[0])
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


@cache
def removed_settings() -> dict[str, str]:
    """Settings and sections of earlier versions, and what became of them."""
    file = Path(__file__).with_name("removed_settings.yaml")
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


def explain(error: ValidationError) -> str:
    """One message with each invalid key, its value and what is allowed."""
    settings = dict(known_settings(Settings))
    faults: dict[str, list[ErrorDetails]] = {}
    for item in error.errors(include_url=False):
        # After the setting's key, the location has the branch of a union.
        keys = [*accumulate(map(str, item["loc"]), "{}.{}".format)] or [""]
        path = next((key for key in keys if key in settings), keys[-1])
        faults.setdefault(path, []).append(item)
    sentences = (_fault(path, items, settings) for path, items in faults.items())
    return "settings: " + "; ".join(sentences)


def _fault(
    path: str, items: Sequence[ErrorDetails], settings: Mapping[str, FieldInfo]
) -> str:
    """What is wrong with a key, from pydantic's errors of all branches of its type."""
    first = items[0]
    if first["type"] == "extra_forbidden":
        became = [
            f"{name}: this setting is gone: {sentence}"
            for name, sentence in removed_settings().items()
            if f"{name}.".startswith(f"{path}.")
        ]
        if became:
            return "; ".join(became)
        value = first["input"]
        while isinstance(value, dict) and value:  # a section: its first setting
            (key, value), *_ = value.items()
            path = f"{path}.{key}"
        near = difflib.get_close_matches(path, settings, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{path}: unknown setting{hint}"
    if first["type"] == "model_type":
        return f"{path} is a section: name a setting in it (xnq-dist settings {path})"
    said = [item["msg"] for item in items if item["type"].startswith(SAID)]
    if not said and path in settings:
        allowed = values_of(settings[path].annotation)
        if allowed == "text":  # of a pattern, which the description explains
            allowed = meaning_of(settings[path])
        said = [f"allowed: {allowed}"]
    text = ", or ".join(dict.fromkeys(said or [first["msg"]]))
    text = text.replace("Value error, ", "").replace("Input should", "must")
    if first["type"] == "value_error":
        return f"{path}: {text}" if path in settings else text
    return f"{path} = {first['input']!r}: {text}"
