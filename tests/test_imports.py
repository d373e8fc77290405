"""Which module may import which, and what importing costs."""

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
from evodrop._kernels.epoch import run_epoch

SOURCE = Path(evodrop.__file__).parent
ARROWS = {  # a module, and those that it may import besides itself; `nn` and `linear` never meet, nobody imports `lab`
    "_checks": set(),
    "definitions": {"_checks"},
    "noise": {"_checks", "definitions"},
    "_kernels": {"_checks", "noise"},
    "sampling": {"_checks", "_kernels", "noise"},
    "theory": {"_checks", "definitions", "noise"},
    "nn": {"_checks", "_kernels", "definitions", "noise", "sampling"},
    "linear": {"_checks", "_kernels", "definitions", "noise"},
    "lab": {"nn", "linear", "theory", "_checks", "definitions", "noise"},
    "__main__": {"lab"},
}
LAB = {  # the same inside the laboratory, exactly; those above come first, so there is no cycle
    "methods": set(),
    "run": {"methods"},
    "data": set(),
    "networks": {"methods"},
    "training": {"data", "networks", "run"},
    "store": {"run", "training"},
    "curves": {"run", "store"},
    "summary": {"curves", "run"},
    "panels": {"curves", "data", "methods", "run", "summary"},
    "claims": {"panels"},
    "verdicts": {"claims", "curves", "data", "methods", "panels", "store", "summary"},
    "figures": {"panels", "store", "summary", "verdicts"},
    "report": {"curves", "data", "figures", "methods", "panels", "run", "summary", "verdicts"},
    "runner": {"data", "methods", "run", "store", "training"},
    "experiment": {
        *("curves", "data", "figures", "methods", "panels", "report"),
        *("run", "runner", "store", "training", "verdicts"),
    },
    "cli": {
        *("data", "experiment", "figures", "panels"),
        *("report", "run", "runner", "store", "training", "verdicts"),
    },
}


def imported_modules(path, package="evodrop"):
    """The first names after the package's own in what a file imports, at its head or in its functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _module(node.module, package)
        elif isinstance(node, ast.Import):
            yield from (module for name in node.names for module in _module(name.name, package))


def _module(name, package):
    if name.startswith(f"{package}."):
        yield name.removeprefix(f"{package}.").split(".")[0]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    module = path.relative_to(SOURCE).with_suffix("").parts[0]
    if module == "__init__":
        assert set(imported_modules(path)) == set()
    else:
        assert set(imported_modules(path)) <= ARROWS[module] | {module}


@pytest.mark.parametrize("module", LAB)
def test_imports_in_the_laboratory_point_one_way(module):
    paths = [*(SOURCE / "lab" / module).rglob("*.py"), *(SOURCE / "lab").glob(f"{module}.py")]
    imported = {other for path in paths for other in imported_modules(path, "evodrop.lab")} - {module}
    assert paths
    assert imported == LAB[module]
    assert imported <= set(list(LAB)[: list(LAB).index(module)])


def test_every_module_of_the_laboratory_has_its_arrows():
    modules = {path.stem for path in (SOURCE / "lab").iterdir()} - {"__init__", "__pycache__", "templates"}
    assert modules == set(LAB)


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
        module = path.relative_to(SOURCE).with_suffix("").parts[0]
        may = plain | (extra if module in ("nn", "lab") or path.stem == "figure" else set())
        may |= cluster if module == "linear" else set()
        assert set(imported_packages(path)) <= may, path


def test_the_map_names_every_public_module():
    for module in evodrop.__all__:
        if module != "__version__":
            assert f"``{module}``" in evodrop.__doc__
            assert getattr(evodrop, module).__name__ == f"evodrop.{module}"
    with pytest.raises(AttributeError, match="no attribute 'gate'"):
        _ = evodrop.gate
    assert set(evodrop.__all__) <= set(dir(evodrop))


FOLDERS = [path.parent for path in sorted(SOURCE.glob("lab/**/__init__.py"))]


@pytest.mark.parametrize("folder", [SOURCE / "nn", *FOLDERS], ids=lambda path: path.name)
def test_the_map_of_a_folder_names_every_module_there(folder):
    """But for private ones, which are not for users."""
    modules = {path.stem for path in folder.iterdir() if not path.stem.startswith("_")} - {"templates"}
    described = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert {module for module in modules if f"``{module}``" not in described} == set()


@pytest.mark.parametrize("path", sorted(SOURCE.glob("lab/**/*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_modules_of_the_laboratory_keep_their_private_names(path):
    """What begins with an underscore is used in its own file alone: the other names are what a module offers."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("evodrop.lab"):
            assert [name.name for name in node.names if name.name.startswith("_")] == []
            module = importlib.import_module(node.module)
            assert all(hasattr(module, name.name) for name in node.names)


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


def test_without_torch_the_import_says_what_it_needs():
    code = "import sys; sys.modules['torch'] = None\ntry: import evodrop.nn\nexcept ImportError as error: print(error)"
    assert fresh(code) == "evodrop.nn needs PyTorch: pip install 'evodrop[torch]'"
