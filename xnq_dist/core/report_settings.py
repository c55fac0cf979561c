"""The section `report` of the settings: the words and the class of the report page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, StringConstraints, create_model, field_validator

from xnq_dist.core.section import Section

__all__ = ["ReportSettings"]

Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

if TYPE_CHECKING:
    _WithClass = Section
else:
    # `class` is a keyword, so that a field of this name cannot be written in a body.
    _WithClass = create_model(
        "_WithClass",
        __base__=Section,
        **{
            "class": (
                Word,
                Field(
                    "auto",
                    description="class that the page and its first sentences are about;"
                    " auto: the last class where classes are numbers or booleans, else"
                    " the class with the fewest labelled nodes, of more than two"
                    " classes with at least half of an equal share of them",
                ),
            )
        },
    )


class ReportSettings(_WithClass):
    """Words and class of the report page; estimates do not depend on them."""

    class_names: dict[Word, Word] = Field(
        {},
        description="class names to print, as they read after 'share of', such as "
        "{0: humans, 1: bots}",
    )
    community: Word | tuple[Word, Word] = Field(
        "community",
        description="word for a community, such as page; [country, countries] where "
        "the plural is not regular",
    )
    node: Word | tuple[Word, Word] = Field(
        "node", description="word for a node, such as user; or [person, people]"
    )
    width: float = Field(
        0.30,
        gt=0,
        le=1,
        description="width below which the page counts an interval as narrow",
    )

    @property
    def shown_class(self) -> str:
        """The setting ``report.class``."""
        return str(getattr(self, "class"))

    @field_validator("class", mode="before", check_fields=False)
    @classmethod
    def _name(cls, value: Any) -> Any:
        return _text(value)

    @field_validator("class_names", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {_text(name): _text(word) for name, word in value.items()}
        return value


def _text(value: Any) -> Any:
    """A class's name as it is in the tables; YAML reads 1 and true as other types."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value
