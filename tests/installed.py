"""Try an installed wheel in an environment that has no extras: ``python tests/installed.py dist/evodrop-*.whl``.

It needs nothing but the standard library and evodrop, since pytest would bring packages along. ``make dist`` runs it.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path, PurePosixPath

EXTRAS = ("evodrop.nn", "evodrop.lab", "evodrop.__main__")  # what needs torch or typer to be imported
CLUSTER = "evodrop.linear.dask"  # what is imported without Dask, but has examples that need it
SECONDS = 0.15  # an import of evodrop may take


def check_contents(wheel: str) -> None:
    """The package and its metadata, and nothing else."""
    tops = {PurePosixPath(name).parts[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"evodrop"}, tops


def run_doctests() -> tuple[int, int]:
    """Number of modules that were imported and of examples that were run."""
    import evodrop

    assert Path(evodrop.__file__).is_relative_to(sysconfig.get_path("purelib")), evodrop.__file__
    found = pkgutil.walk_packages(evodrop.__path__, "evodrop.", onerror=str)  # evodrop.nn is passed over
    modules = [evodrop, *(importlib.import_module(name) for _, name, _ in found if not name.startswith(EXTRAS))]
    results = [
        doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
        for module in modules
        if not module.__name__.startswith(CLUSTER)
    ]
    assert not sum(result.failed for result in results)
    return len(modules), sum(result.attempted for result in results)


def check_extras() -> None:
    """What is not installed is named in one sentence."""
    assert importlib.util.find_spec("torch") is None
    torch, lab = (
        "ModuleNotFoundError: evodrop.nn needs PyTorch: pip install 'evodrop[torch]'",
        "the command evodrop needs its extra: install evodrop[lab]",
    )
    for command, message in (
        ([sys.executable, "-c", "import evodrop.nn"], torch),
        ([sys.executable, "-m", "evodrop"], lab),
        ([Path(sysconfig.get_path("scripts"), "evodrop")], lab),
    ):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 1, run
        assert run.stderr.splitlines()[-1] == message, run


def import_seconds() -> float:
    code = "from time import perf_counter as now; start = now(); import evodrop; print(now() - start)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


if __name__ == "__main__":
    check_contents(sys.argv[1])
    check_extras()
    n_modules, n_examples = run_doctests()
    assert n_examples > 30, n_examples
    seconds = import_seconds()
    assert seconds <= SECONDS, seconds
    print(f"{n_modules} modules, {n_examples} examples pass without extras; import evodrop: {seconds * 1000:.1f} ms")
