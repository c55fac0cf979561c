"""Rules of the project that import-linter and ruff do not check."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import xnq_dist
from tests.code_size import long_functions, tokens

ROOT = Path(xnq_dist.__file__).parent
ROOMS = sorted(
    path.parent.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("__init__.py")
    if path.parent != ROOT
)
"""Folders of the package."""


def imported(file: Path) -> set[str]:
    """Top-level packages that a module imports, except for type checkers only."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


BESIDE = {
    "reservoir": {"wire.py"},  # what is not public of distributed
}
"""Modules that touch Dask beside the one of their room."""


OF_DASK = {"core/clusters"}
"""Rooms whose every module starts or reaches a Dask cluster of its own kind."""


@pytest.mark.parametrize("room", sorted({*ROOMS} - OF_DASK))
def test_one_module_of_a_room_touches_dask(room):
    touching = [
        file.name
        for file in (ROOT / room).glob("*.py")
        if imported(file) & {"dask", "distributed"}
    ]
    beside = BESIDE.get(room, set())
    assert beside <= set(touching), f"{beside} need not be named here"
    assert len(set(touching) - beside) <= 1, touching


def test_gpu_packages_are_imported_in_backend_alone():
    gpu = {"cupy", "cugraph", "dask_cuda", "rmm"}
    touching = [file.name for file in ROOT.rglob("*.py") if imported(file) & gpu]
    assert touching == ["backend.py"]


def test_nothing_is_pickled_or_printed():
    for file in [*ROOT.rglob("*.py"), *(ROOT.parent / "flows").rglob("*.py")]:
        assert not imported(file) & {"pickle", "joblib", "cloudpickle"}, file
        calls = [
            node.func.id
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert "print" not in calls, file


def test_modules_stay_small():
    long = {
        file.name: count
        for file in [*ROOT.rglob("*.py"), *(ROOT.parent / "flows").rglob("*.py")]
        if (count := len(file.read_text(encoding="utf-8").splitlines())) > 600
    }
    assert long == {}


FILES = sorted(ROOT.rglob("*.py"))
MOST_FILES = 230
BESIDE_PIPELINE = [*ROOT.glob("*.py")]
FLOWS = [*(ROOT.parent / "flows").glob("*.py")]
NEEDS = [*ROOT.glob("*/needs.py"), ROOT / "core" / "need.py"]
BUDGETS = {
    "all": 188_543,
    "core": 25_999,
    "graph": 35_999,
    "reservoir": 17_634,
    "groups": 2_142,
    "plan and needs": 5_640,
    "pipeline and the modules next to it": 5_012,
    "command line and flows": 7_432,
    "readout": 20_673,
    "quantify and selection": 28_520,
    "steps": 8_662,
    "report": 5_449,
    "api": 4_822,
    "monitor": 2_547,
    "evaluation": 21_102,
}
"""Maximum tokens of code. They only go down; who needs more says in the commit why."""


@pytest.mark.parametrize("part", BUDGETS)
def test_code_stays_within_its_budget(part):
    parts = {
        "all": FILES,
        "command line and flows": [*(ROOT / "app").rglob("*.py"), *FLOWS],
        "quantify and selection": [
            *(ROOT / "quantify").rglob("*.py"),
            *(ROOT / "selection").rglob("*.py"),
        ],
        "plan and needs": [*(ROOT / "plan").rglob("*.py"), *NEEDS],
        "pipeline and the modules next to it": BESIDE_PIPELINE,
    }
    files = parts.get(part) or (ROOT / part).rglob("*.py")
    assert tokens(files) <= BUDGETS[part]


def test_the_package_has_few_files():
    assert len(FILES) <= MOST_FILES


def test_functions_stay_within_80_lines():
    assert long_functions([*FILES, *FLOWS], 80) == {}


def test_templates_stay_within_their_lines():
    """HTML, CSS and JavaScript of the report page."""
    files = (ROOT / "report" / "templates").iterdir()
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    assert lines <= 1200


def module_graph() -> dict[str, set[str]]:
    """What every module of the package imports of it, inside functions too."""
    files = {
        ".".join(file.relative_to(ROOT.parent).with_suffix("").parts): file
        for file in ROOT.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): file for name, file in files.items()}
    found: dict[str, set[str]] = {}
    for name, file in files.items():
        seen = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                seen |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                seen |= full & files.keys() or {node.module}
        # Importing a module imports its packages first.
        packages = {
            one.rsplit(".", n)[0] for one in seen for n in range(1, one.count(".") + 1)
        }
        own = {one for one in packages if name.startswith(f"{one}.") or name == one}
        found[name] = ((seen | packages) - own - {name}) & files.keys()
    return found


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """Modules that a module imports, directly or not."""
    found: set[str] = set()
    ahead = [*graph[start]]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += graph[name]
    return found


def test_modules_import_each_other_one_way():
    """Imports inside functions and for type checkers count, too."""
    graph = module_graph()
    assert len(graph) > 200
    assert [name for name in graph if name in reached(graph, name)] == []
