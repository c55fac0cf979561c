"""Readers of any bytes: a table, or one `InputError`, in bounded memory."""

from __future__ import annotations

import gzip
import io

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xnq_dist.core.errors import InputError
from xnq_dist.core.sections import InputSettings
from xnq_dist.graph.keys import ids_of
from xnq_dist.graph.tables import open_table
from xnq_dist.graph.text_tables import looks_like, sniff

ROWS = pa.table(
    {"src": ["u1", "ü2", "u3"] * 20, "dst": range(60), "weight": [0.5, 1.0, 2.5] * 20}
)
TEXT = "src;dst;weight\n" + "".join(
    f'"u{at}";{at:03};{at},5\n' for at in range(60)
)  # fmt: skip
MEMORY = 128 << 20
"""Bytes that a process may grow by while it reads a file of some kilobytes."""


def parquet():
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, row_group_size=25, write_page_checksum=True)
    return sink.getvalue()


VALID = {
    "t.csv": TEXT.encode(),
    "t.tsv": TEXT.replace(";", "\t").encode(),
    "t.txt": TEXT.encode("utf-8-sig"),
    "t.csv.gz": gzip.compress(TEXT.encode(), mtime=0),
    "t.parquet": parquet(),
}


@st.composite
def mutated(draw, data):
    """The bytes with some of them changed, removed, repeated or inserted."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 40)))
        more = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from([b"\n", b'"', b";", b"\0", b"\r\n", b"\xff", b"\n\n"]),
                st.just(data[at:end] * 2),
            )
        )
        data = data[:at] + more + data[end:]
    return data


def check_reading(path):
    """Read a file as the pipeline does; any error but an `InputError` fails."""
    words, process = path.name, psutil.Process()
    before = process.memory_info().rss
    try:
        table = open_table(path, "edge table")
        columns = list(table.schemas[table.files[0]])
        table.n_rows  # noqa: B018
        for column in columns:
            for batch in table.batches([column], rows=7):
                assert batch.rows.num_rows
                ids_of(batch, column)
    except InputError as error:
        words = str(error)
    assert path.name in words
    assert len(words) < 2000
    # The header of a damaged Parquet page can state a size of up to 2 GiB.
    limit = 4 << 30 if path.suffix == ".parquet" else MEMORY
    assert process.memory_info().rss - before < limit


RELAXED = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
THOROUGH = settings(RELAXED, max_examples=2000)


def fuzz(path, examples):
    """Read mutations of the valid file of this name."""

    @examples
    @given(data=mutated(VALID[path.name]))
    def reads(data):
        path.write_bytes(data)
        check_reading(path)

    reads()


@pytest.mark.parametrize("name", VALID)
def test_a_mutated_file_is_a_table_or_one_error(tmp_path, name):
    (tmp_path / name).write_bytes(VALID[name])
    batches = open_table(tmp_path / name, "edge table").batches(["src", "dst"])
    assert sum(batch.rows.num_rows for batch in batches) == 60
    fuzz(tmp_path / name, RELAXED)


@pytest.mark.slow
@pytest.mark.parametrize("name", VALID)
def test_many_mutated_files_are_tables_or_one_error(tmp_path, name):
    fuzz(tmp_path / name, THOROUGH)


@RELAXED
@given(data=st.binary(max_size=300), name=st.sampled_from([*VALID, "t.dat", "t"]))
@example(data=b'"', name="t.csv")
@example(data=b"\xff\xfe", name="t.csv")
@example(data=b"PAR1PAR1", name="t.parquet")
def test_any_bytes_are_a_table_or_one_error(tmp_path, data, name):
    (tmp_path / name).write_bytes(data)
    check_reading(tmp_path / name)


@RELAXED
@given(
    text=st.text(st.sampled_from("ab1,;\t|\"' \n\r.é\u2028\0"), max_size=200),
    complete=st.booleans(),
)
def test_any_text_has_a_dialect(text, complete):
    head = text.encode()
    looks_like(head)
    try:
        found = sniff(head, complete, InputSettings(), "t.csv")
    except InputError:
        assert "\0" in text
    else:
        assert len(found.separator) == 1
        assert found.text()


def test_a_file_that_unpacks_to_much_more_is_streamed(tmp_path):
    bomb = gzip.compress(b"src,dst\n" + b"1,2\n" * (8 << 20), 9)
    assert len(bomb) < 1 << 18
    (tmp_path / "t.csv.gz").write_bytes(bomb)
    rows = 0
    for batch in open_table(tmp_path / "t.csv.gz", "edge table").batches(["src"]):
        rows += batch.rows.num_rows
        assert pa.total_allocated_bytes() < MEMORY // 2
    assert rows == 8 << 20


def test_a_very_long_name_is_shortened_in_a_message(tmp_path):
    path, name = tmp_path / "t.parquet", "n" * 3000
    pq.write_table(pa.table({name: [0.5], "dst": [1]}), path)
    (batch,) = open_table(path, "edge table").batches([name])
    with pytest.raises(InputError, match=r"column 'n{200}\.{3}' is 0.5 in"):
        ids_of(batch, name)
