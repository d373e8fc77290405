"""The house: which room may import which, and what importing costs."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import evodrop
from evodrop._kernels.compile import _sources
from evodrop.linear.kernels import run_epoch

SOURCE = Path(evodrop.__file__).parent
ROOMS = {  # a room, and the rooms that it may enter besides itself; `nn` and `linear` never meet
    "_checks": set(),
    "definitions": {"_checks"},
    "noise": {"_checks", "definitions"},
    "_kernels": {"_checks", "noise"},
    "sampling": {"_checks", "_kernels", "noise"},
    "durable": set(),
    "locking": set(),
    "theory": {"_checks", "definitions", "noise"},
    "nn": {"_checks", "_kernels", "definitions", "noise", "sampling"},
    "linear": {"_checks", "_kernels", "definitions", "noise"},
    "experiments": {"nn", "linear", "theory", "_checks", "definitions", "durable", "locking", "noise"},
    "cli": {"_checks", "definitions", "experiments", "linear", "theory"},
    "__main__": {"cli"},
}
LABORATORY = {  # the same for the rooms of the laboratory; those above come first
    "datasets": set(),
    "networks": set(),
    "methods": {"networks"},
    "records": {"methods"},
    "training": {"datasets", "records"},
    "figures": {"datasets", "methods", "records"},
    "claims": {"datasets", "figures", "methods", "records"},
    "theory_figure": set(),
    "plotting": {"claims", "figures", "theory_figure"},
    "report": {"claims", "figures", "plotting", "records"},
    "running": {"claims", "datasets", "figures", "methods", "networks", "records", "report", "training"},
}


def imported_rooms(path, house="evodrop"):
    """The first names after the house's own in what a file imports, at its head or in its functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == house:
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _room(node.module, house)
        elif isinstance(node, ast.Import):
            yield from (room for name in node.names for room in _room(name.name, house))


def _room(module, house):
    if module.startswith(f"{house}."):
        yield module.removeprefix(f"{house}.").split(".")[0]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    room = path.relative_to(SOURCE).with_suffix("").parts[0]
    if room == "__init__":
        assert set(imported_rooms(path)) == set()
    else:
        assert set(imported_rooms(path)) <= ROOMS[room] | {room}


@pytest.mark.parametrize("room", LABORATORY)
def test_imports_in_the_laboratory_point_one_way(room):
    laboratory = SOURCE / "experiments"
    paths = [*(laboratory / room).rglob("*.py"), *laboratory.glob(f"{room}.py")]
    entered = {other for path in paths for other in imported_rooms(path, "evodrop.experiments")}
    assert paths
    assert entered - {room} == LABORATORY[room]
    assert entered - {room} <= set(list(LABORATORY)[: list(LABORATORY).index(room)])


def test_every_room_of_the_laboratory_has_its_arrows():
    rooms = {path.stem for path in (SOURCE / "experiments").iterdir()} - {"__init__", "__pycache__"}
    assert rooms == set(LABORATORY)


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        packages = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"evodrop"}
        yield from ({"sklearn": "scikit-learn"}.get(package, package) for package in packages)


def test_what_is_imported_is_declared():
    """Also what another dependency brings along today: it may cease to."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    plain, extra, cluster = (
        {re.match(r"[\w-]+", line)[0] for line in lines}
        for lines in (project["dependencies"], extras["torch"] + extras["lab"], extras["dask"])
    )
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).with_suffix("").parts[0]
        may = plain | (extra if room in ("nn", "experiments", "cli") or path.stem == "figure" else set())
        may |= cluster if room == "linear" else set()
        assert set(imported_packages(path)) <= may, path


def test_the_map_names_every_public_room():
    for room in evodrop.__all__:
        if room != "__version__":
            assert f"``{room}``" in evodrop.__doc__
            assert getattr(evodrop, room).__name__ == f"evodrop.{room}"
    with pytest.raises(AttributeError, match="no attribute 'door'"):
        _ = evodrop.door
    assert set(evodrop.__all__) <= set(dir(evodrop))


FOLDERS = [path.parent for path in sorted(SOURCE.glob("experiments/**/__init__.py"))]


@pytest.mark.parametrize("folder", [SOURCE / "nn", *FOLDERS], ids=lambda path: path.name)
def test_the_map_of_a_folder_names_every_room_there(folder):
    rooms = {path.stem for path in folder.iterdir() if not path.name.startswith("_")}
    map_of_rooms = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert {room for room in rooms if f"``{room}``" not in map_of_rooms} == set()


@pytest.mark.parametrize("room", ["networks", "training", "records", "figures", "claims", "plotting", "report"])
def test_the_rooms_of_the_laboratory_keep_their_public_names(room):
    module = importlib.import_module(f"evodrop.experiments.{room}")
    assert module.__all__
    assert all(hasattr(module, name) for name in module.__all__)


def fresh(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import evodrop", "torch sklearn numba numpy scipy"),
        ("import evodrop.definitions, evodrop.sampling", "torch sklearn"),
        ("import evodrop.nn", "sklearn rich"),
        ("import evodrop.linear", "torch dask distributed"),
        ("import evodrop.theory", "torch sklearn numba matplotlib rich"),
    ],
)
def test_importing_brings_no_more_than_it_needs(statement, absent):
    assert fresh(f"{statement}; import sys; print([name for name in {absent.split()} if name in sys.modules])") == "[]"


def test_machine_code_is_made_anew_when_any_kernel_has_changed():
    """numba's cache stamps the file of a kernel alone; ours stamps all of them."""
    assert run_epoch._cache._cache_file._source_stamp[1] == _sources()
    assert len(_sources()) == 64


def test_importing_is_quick():
    """A generous bound, for a busy machine; the benchmark measures the figure."""
    time = "from time import perf_counter as now; {}; start = now(); import {}; print(now() - start)"
    assert min(float(fresh(time.format("pass", "evodrop"))) for _ in range(3)) < 0.5
    assert min(float(fresh(time.format("import torch", "evodrop.nn"))) for _ in range(3)) < 1.5


def test_without_torch_the_door_says_what_it_needs():
    code = "import sys; sys.modules['torch'] = None\ntry: import evodrop.nn\nexcept ImportError as error: print(error)"
    assert fresh(code) == "evodrop.nn needs PyTorch: pip install 'evodrop[torch]'"
