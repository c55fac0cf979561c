"""The data contract: valid ODCS, and what the published files hold."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
import yaml
from open_data_contract_standard.model import OpenDataContractStandard

from xnq_dist.app.cli import main
from xnq_dist.core.contract import PUBLISHED, data_contract
from xnq_dist.core.schemas import TABLES
from xnq_dist.core.store import RunDirectory, read_published
from xnq_dist.core.store.published import TABLES as FILES


def test_the_contract_is_valid_and_has_every_published_column() -> None:
    text = yaml.safe_dump(data_contract(), sort_keys=False)
    read = OpenDataContractStandard.from_string(text)
    assert read.apiVersion == "v3.1.0"
    assert [f"{table.name}.parquet" for table in read.schema_ or ()] == [
        file for name in PUBLISHED for file in FILES if file == f"{name}.parquet"
    ]
    assert {f"{name}.parquet" for name in PUBLISHED} | {"report.html"} == set(FILES)
    for table in read.schema_ or ():
        entry = TABLES[str(table.name)]
        columns = {column.name: column for column in table.properties or ()}
        assert list(columns) == [*(c.name for c in entry.columns), "run_id"]
        for column in entry.columns:
            assert columns[column.name].required is not column.nullable
            assert columns[column.name].description == column.meaning
        keys = [c for c in columns.values() if c.primaryKey]
        assert len(keys) == len({c.primaryKeyPosition for c in keys}) >= 2
        assert all(c.required for c in keys)


def test_a_runs_contract_has_its_tables_and_types(
    published: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["contract", published.uri, "--json"])
    shown = capsys.readouterr()
    values = json.loads(shown.out)
    assert yaml.safe_load(shown.err) == values
    assert OpenDataContractStandard.from_string(shown.err).schema_
    version = read_published(published.location)
    tables = {table["name"]: table for table in values["schema"]}
    assert set(tables) == set(version.tables())
    for name, table in tables.items():
        kinds = [column["physicalType"] for column in table["properties"]]
        assert kinds == [str(kind) for kind in version.schema(name).types]


def test_types_that_differ_between_runs_are_those_of_the_run() -> None:
    schema = pa.schema({"community": pa.int64(), "class": pa.bool_()})
    (table,) = data_contract({"prevalence": schema})["schema"]
    logical = {column["name"]: column["logicalType"] for column in table["properties"]}
    assert logical["community"] == "integer"
    assert logical["class"] == "boolean"
    (table, *_) = data_contract()["schema"]
    logical = {column["name"]: column["logicalType"] for column in table["properties"]}
    assert logical["community"] == logical["class"] == "string"
    assert logical["prevalence"] == "number"
