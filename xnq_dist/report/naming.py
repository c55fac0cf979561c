"""The words of the report page: names of classes, communities and nodes."""

from __future__ import annotations

from dataclasses import dataclass

from xnq_dist.core.plain_text import plain
from xnq_dist.core.settings import ReportSettings
from xnq_dist.report.wording import count

__all__ = ["Naming"]


@dataclass(frozen=True)
class Naming:
    """Words for what the tables hold, from the settings ``report``."""

    settings: ReportSettings

    def of_class(self, name: str, limit: int = 60) -> str:
        """A class as it reads after "share of"."""
        known = self.settings.class_names.get(name)
        return plain(known if known else f"class {name}", limit)

    def communities(self, number: float = 2) -> str:
        """The word for communities, in the plural unless there is one."""
        return _word(self.settings.community, number)

    def nodes(self, number: float = 2) -> str:
        """The word for nodes, in the plural unless there is one."""
        return _word(self.settings.node, number)

    def some_communities(self, number: int) -> str:
        """A number of communities, such as "1,200 pages"."""
        return f"{count(number)} {self.communities(number)}"


def _word(word: str | tuple[str, str], number: float) -> str:
    """A word in the singular or plural.

    Examples
    --------
    >>> _word("page", 2), _word("county", 2), _word(("person", "people"), 2)
    ('pages', 'counties', 'people')
    """
    one, more = word if isinstance(word, tuple) else (word, "")
    if not more:
        regular = one[-1:] != "y" or one[-2:-1] in (*"aeiou",)
        more = f"{one}s" if regular else f"{one[:-1]}ies"
    return one if number == 1 else more
