"""Files of any content: a graph or one sentence; nothing in them is run."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.convert.one_graph import WRITERS
from xnq_dist.convert.conversion import AUTO, read_graph
from xnq_dist.core.errors import DoesNotFitError, InputError


def torch_file(path: Path, program: bytes, **members: bytes) -> Path:
    """An archive of torch.save with this pickle."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", program)
        for name, data in members.items():
            archive.writestr(f"a/data/{name}", data)
    return path


class Harm:
    """Creates a file when it is unpickled."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self):
        return (os.mkdir, (str(self.sentinel),))


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("form", [AUTO, "pyg"])
def test_code_in_a_pickle_is_refused_by_name(tmp_path, protocol, form):
    sentinel = tmp_path / "ran"
    program = pickle.dumps({"x": 1, "edge_index": Harm(sentinel)}, protocol)
    with pytest.raises(InputError, match=r"names posix\.mkdir, .*ran nothing: save"):
        read_graph(torch_file(tmp_path / "a.pt", program), form)
    assert not sentinel.exists()
    pickle.loads(program)  # noqa: S301 - what would have been run
    assert sentinel.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'touch SENTINEL'\ntR.",
        b"(S'touch SENTINEL'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch SENTINEL'\no.",
        b'cbuiltins\neval\n(S\'open("SENTINEL", "w")\'\ntR.',
        b"\x80\x02ctorch_geometric.data.data\nData\n)\x81}(S'x'\n"
        b"cos\nsystem\n(S'touch SENTINEL'\ntRub.",
        b"\x80\x02ctorch_geometric\nos.system\n(S'touch SENTINEL'\ntR.",
    ],
    ids=["reduce", "inst", "obj", "eval", "inside Data", "through PyG"],
)
def test_each_way_of_calling_is_refused(tmp_path, program):
    sentinel = tmp_path / "ran"
    program = program.replace(b"SENTINEL", str(sentinel).encode())
    with pytest.raises(InputError):
        read_graph(torch_file(tmp_path / "a.pt", program))
    assert not sentinel.exists()


def tensor(count: int, offset: int, shape: tuple, strides: tuple) -> bytes:
    """A dict with one tensor as edge_index, of a storage of int64."""
    inner = b"(X\x07\x00\x00\x00storagectorch\nLongStorage\nX\x01\x00\x00\x000"
    inner += b"X\x03\x00\x00\x00cpu" + number(count) + b"tQ" + number(offset)
    for numbers in (shape, strides):
        inner += b"(" + b"".join(map(number, numbers)) + b"t"
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + inner
    made += b"\x89ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02}X\x0a\x00\x00\x00edge_index" + made + b"s."


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def test_a_tensor_of_hand_written_opcodes_is_read(tmp_path):
    values = np.arange(6, dtype="<i8").tobytes()
    program = tensor(6, 1, (2, 2), (1, 2))
    path = torch_file(tmp_path / "a.pt", program, **{"0": values})
    assert read_graph(path).edges.to_pydict() == {"src": [1, 3], "dst": [2, 4]}


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((6, 0, (2, 4), (4, 1)), "beyond the end"),
        ((6, 5, (2, 1), (1, 1)), "beyond the end"),
        ((6, -1, (2, 1), (1, 1)), "without a size"),
        ((6, 0, (2, 1), (-1, 1)), "without a size"),
        ((6, 0, (2, 1), (1,)), "is not a complete file"),
        ((99, 0, (2, 1), (1, 1)), "storage 0 ends after 6 values"),
        ((6, 0, (2, 2**62), (0, 0)), "repeats 6 values"),
        ((6, 0, (2, 1, 1), (1, 1, 1)), "edges have shape"),
    ],
)
def test_a_tensor_beyond_its_storage_is_refused(tmp_path, numbers, words):
    values = np.arange(6, dtype="<i8").tobytes()
    path = torch_file(tmp_path / "a.pt", tensor(*numbers), **{"0": values})
    with pytest.raises(InputError, match=words):
        read_graph(path)


def nested(depth: int) -> bytes:
    return b")" + b"\x85" * depth


@pytest.mark.parametrize(
    "program",
    [
        b"}" + nested(50_000) + b"K\x01s.",
        b"}X\x0a\x00\x00\x00edge_index" + nested(50_000) + b"s.",
        b"\x8c\x01a" + nested(50_000) + b"\x93.",
        b"}X\x0a\x00\x00\x00edge_index"
        + b"]q\x00"
        + b"](h\x00h\x00eq\x00" * 60
        + b"s.",
        b"cnumpy\ndtype\n" + nested(50_000) + b"\x85R.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00tR"
        b"(K\x01\x8a\x08" + struct.pack("<q", 2**60) + b"cnumpy\ndtype\n"
        b"(X\x02\x00\x00\x00f8tR(K\x03X\x01\x00\x00\x00<tb\x89\x8a\x08"
        + struct.pack("<q", 2**40)
        + b"tb.",
        b"ctorch_geometric.data.data\nData\n)\x81q\x00h\x00b.",
    ],
    ids=[
        *("deep key", "deep value", "deep name", "shared lists", "deep type", "zeros"),
        "a state that is itself",
    ],
)
def test_pickles_that_grow_without_end_are_refused(tmp_path, program):
    with pytest.raises(InputError):
        read_graph(torch_file(tmp_path / "a.pt", b"\x80\x02" + program))


def test_an_archive_is_measured_by_its_directory_before_it_is_unpacked(tmp_path):
    """Terabytes of zeros, declared in an archive of some hundred bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("node_features", "node_labels", "edges"):
            archive.writestr(f"{name}.npy", b"0" * 1000)
    data = bytearray(buffer.getvalue())
    entry = -1
    while (entry := data.find(b"PK\x01\x02", entry + 1)) >= 0:
        data[entry + 24 : entry + 28] = struct.pack("<I", 0xFFFFFFF0)
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        free = type("Free", (), {"available": 2**34})
        patch.setattr("psutil.virtual_memory", lambda: free)
        with pytest.raises(DoesNotFitError, match=r"needs about 12\.0 GiB .* 8\.0 GiB"):
            read_graph(tmp_path / "a.npz")


def test_a_header_that_names_more_numbers_than_the_file_has_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in ("node_features", "node_labels", "edges"):
            archive.writestr(f"{name}.npy", header.getvalue() + bytes(80))
    with pytest.raises(InputError, match="array node_features ends after 80 bytes"):
        read_graph(tmp_path / "a.npz")


def test_text_that_unpacks_without_end_is_refused_on_the_way(tmp_path, monkeypatch):
    import gzip

    free = type("Free", (), {"available": 2**25})
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    monkeypatch.setattr("xnq_dist.convert.text_lines.BLOCK", 2**20)
    monkeypatch.setattr("xnq_dist.convert.text_lines.LONGEST", 2**22)
    for text, error in ((b"1 2\n", DoesNotFitError), (b"12", InputError)):
        with gzip.open(tmp_path / "a.gz", "wb", 1) as stream:
            for _ in range(8):
                stream.write(text * (2**20 // len(text)))
        with pytest.raises(error, match=r"needs about|a line of more than"):
            read_graph(tmp_path / "a.gz", "edge-list")


def test_entities_of_xml_are_left_out_and_named(tmp_path):
    head = '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd"><!ENTITY f "&e;&e;">]>'
    body = (
        '<graphml><key id="d" for="node" attr.name="label" attr.type="string"/>'
        '<graph edgedefault="directed"><node id="a"><data key="d">&f;</data></node>'
        "</graph></graphml>"
    )
    (tmp_path / "a.graphml").write_text(f'<?xml version="1.0"?>{head}{body}')
    found = read_graph(tmp_path / "a.graphml")
    assert "label" not in found.nodes.column_names
    assert "Unknown XML entity found: 'f'" in found.notes[0]


def test_control_characters_of_a_file_stay_out_of_messages(tmp_path):
    path = torch_file(tmp_path / "a.pt", b"cos\nx\x1b[2J\x0by\n.")
    with pytest.raises(InputError, match=r"names os\.x\?\[2J y, and") as caught:
        read_graph(path)
    assert str(caught.value).isprintable()
    (tmp_path / "a.json").write_text(
        '{"nodes": [{"id": 1, "\\u001b[2J": {}}], "links": []}'
    )
    assert "left out: ?[2J" in read_graph(tmp_path / "a.json").notes


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return stream.getvalue()


def changed(data: bytes, seed: int) -> bytes:
    """Some bytes replaced, removed, doubled or cut off; of an archive, of a member."""
    pick = random.Random(seed)
    if data.startswith(b"PK") and pick.random() < 0.8:
        parts = members(data)
        name = pick.choice(sorted(parts))
        return packed(parts | {name: changed(parts[name], pick.randrange(2**30))})
    for _ in range(pick.randrange(1, 5)):
        at = pick.randrange(len(data) + 1)
        size = pick.choice((1, 1, 2, 8, 60))
        new = pick.choice(
            (b"", pick.randbytes(size), b"9" * size, data[at : at + size])
        )
        kept = pick.choice((at, at + size))
        data = data[:at] + new + data[kept:]
    return data[: pick.randrange(len(data) + 1)] if pick.random() < 0.1 else data


def reads_or_refuses(path: Path, form: str) -> None:
    try:
        found = read_graph(path, form)
    except (InputError, DoesNotFitError) as error:
        refused = str(error)
    else:
        found.nodes.validate(full=True)
        found.edges.validate(full=True)
        return
    assert path.name in refused
    assert len(refused.splitlines()) == 1


SLOW = [HealthCheck.function_scoped_fixture]


def fuzzed(form: str, folder: Path, examples: int) -> None:
    name, write = WRITERS[form]
    path = folder / name
    write(path)
    files = [path] if path.is_file() else sorted(path.rglob("*.csv.gz"))
    valid = {file: file.read_bytes() for file in files}

    @settings(max_examples=examples, database=None, suppress_health_check=SLOW)
    @given(seed=st.integers(0, 2**40), which=st.integers(0, 99))
    def check(seed: int, which: int) -> None:
        file = files[which % len(files)]
        file.write_bytes(changed(valid[file], seed))
        for each in {form, AUTO}:
            reads_or_refuses(path, each)
        file.write_bytes(valid[file])

    check()


@pytest.mark.parametrize("form", WRITERS)
def test_changed_files_are_read_or_refused(form, tmp_path):
    fuzzed(form, tmp_path, 30)


@pytest.mark.slow
@pytest.mark.parametrize("form", WRITERS)
def test_many_changed_files_are_read_or_refused(form, tmp_path):
    fuzzed(form, tmp_path, 1000)


@settings(max_examples=40, suppress_health_check=SLOW)
@given(data=st.binary(max_size=300))
@pytest.mark.parametrize("form", [AUTO, *(name for name in WRITERS if name != "ogb")])
def test_any_bytes_are_read_or_refused(form, data, tmp_path):
    path = tmp_path / "any.graph"
    path.write_bytes(data)
    reads_or_refuses(path, form)


@settings(max_examples=40, suppress_health_check=SLOW)
@given(program=st.binary(max_size=200))
def test_any_pickle_is_read_or_refused(program, tmp_path):
    reads_or_refuses(torch_file(tmp_path / "a.pt", program), "pyg")
