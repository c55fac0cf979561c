"""Messages of errors with the names that users of Python write.

The package's messages name settings and options as the command line does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from xnq_dist.core.config import known_settings
from xnq_dist.core.errors import XnqError
from xnq_dist.core.settings import Settings

__all__ = ["in_python", "python_names"]

WORDS = {"null": "None", "true": "True", "false": "False"}
"""Values of YAML, in Python."""


@contextmanager
def python_names(renamed: Mapping[str, str] | None = None) -> Iterator[None]:
    """Raise errors of the block with names of Python; arguments as for `in_python`."""
    try:
        yield
    except XnqError as error:
        if error.args:
            error.args = (in_python(str(error), renamed), *error.args[1:])
        raise


def in_python(text: str, renamed: Mapping[str, str] | None = None) -> str:
    """A message with settings and options as arguments of `estimate_prevalence`.

    Parameters
    ----------
    renamed
        Other names of some of these arguments, such as those of an estimator.

    Examples
    --------
    >>> in_python("set labels.drawn=random, or another --out")
    'set labels__drawn="random", or another out'
    """

    def name_of(name: str) -> str:
        plain = name.replace(".", "__")
        return (renamed or {}).get(plain, plain)

    def setting(found: re.Match[str]) -> str:
        equals, value = found["equals"] or "", found["value"] or ""
        if value[:1].isalpha() or "+" in value:
            value = WORDS.get(value, f'"{value}"')
        return name_of(found["name"]) + equals + value

    text = re.sub(r"--overwrite\b", "overwrite=True", text)
    text = re.sub(r"--(?!set)([a-z]+)\b", lambda found: name_of(found[1]), text)
    return _settings().sub(setting, text)


@cache
def _settings() -> re.Pattern[str]:
    """Settings with a section; those without one only where a value follows."""
    keys = [re.escape(name) for name, _ in known_settings(Settings)]
    inner = "|".join(sorted((key for key in keys if "." in key), key=len)[::-1])
    outer = "|".join(key for key in keys if "." not in key)
    return re.compile(
        rf"(?:--set )?(?<![\w./])(?P<name>(?:{inner})(?!\w)|(?:{outer})(?= ?= ?\w))"
        r"(?:(?P<equals> ?= ?)(?P<value>[A-Za-z][\w+]*|(?=[\['\d-])))?"
    )
