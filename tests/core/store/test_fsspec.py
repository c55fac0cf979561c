"""Run directories on filesystems of fsspec."""

from __future__ import annotations

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.conftest import small_settings, write_graph
from xnq_dist.core.errors import RunDirectoryError
from xnq_dist.core.store import Folder, read_published, verify
from xnq_dist.jobs import run_all


class Sealed(MemoryFileSystem):
    """A store that cannot be written."""

    protocol = ("sealed",)

    def _open(self, path, mode="rb", **options):
        if "w" in mode:
            raise NotImplementedError("read only")
        return super()._open(path, mode, **options)


@pytest.fixture(params=["memory", "fsspec+file"])
def folder(request, tmp_path) -> Folder:
    place = (
        "memory://store" if request.param == "memory" else f"fsspec+file://{tmp_path}"
    )
    made = Folder.of(f"{place}/run")
    made.delete_folder()
    return made


def test_files_are_written_listed_copied_and_removed(folder):
    inner = folder.child("stage")
    inner.create()
    inner.write_record("_manifest.json", {"a": 1})
    inner.write_record("_manifest.json", {"a": 2})
    assert inner.read_record("_manifest.json") == {"a": 2}
    assert inner.names() == ["_manifest.json"]
    folder.copy("stage/_manifest.json", "stage/copied.json")
    inner.delete("_manifest.json")
    assert inner.names() == ["copied.json"]
    folder.delete_folder()
    assert not folder.exists()


def test_a_run_in_a_filesystem_of_fsspec_answers_as_on_a_disk(tmp_path):
    sources = write_graph(tmp_path).sources
    settings = small_settings("cluster.workers=1", "communities=leiden")
    found = []
    for out in ("memory://store/complete", str(tmp_path / "run")):
        run_all(sources, out, settings)
        assert run_all(sources, out, settings)["stages"] == {}
        assert verify(out) == []
        found.append(read_published(out).read("prevalence").drop_columns("run_id"))
    assert found[0].equals(found[1])


def test_a_store_that_cannot_hold_a_run_is_refused():
    fsspec.register_implementation("sealed", Sealed, clobber=True)
    with pytest.raises(RunDirectoryError, match=r"cannot be written \(read only\)"):
        Folder.of("sealed://a/run").write_bytes("a", b"a")
    with pytest.raises(RunDirectoryError, match=r"cannot be opened .* check the addr"):
        Folder.of("nowhere://a/run").create()
