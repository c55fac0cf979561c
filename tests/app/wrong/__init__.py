"""Wrong inputs: how valid tables are spoilt, and what is reported."""

from tests.app.wrong.builders import Case, edit, first, write_tables
from tests.app.wrong.columns import (
    columns_cases,
    roles_cases,
    weights_and_features_cases,
)
from tests.app.wrong.communities import communities_cases
from tests.app.wrong.files import files_cases
from tests.app.wrong.ids import ids_cases
from tests.app.wrong.labels import labels_cases
from tests.app.wrong.options import places_cases, settings_cases

__all__ = ["CASES", "Case", "edit", "first", "write_tables"]

CASES = (
    *files_cases(),
    *columns_cases(),
    *ids_cases(),
    *labels_cases(),
    *roles_cases(),
    *weights_and_features_cases(),
    *communities_cases(),
    *settings_cases(),
    *places_cases(),
)
