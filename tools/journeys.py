"""How many files a reader opens to follow a call, and how many types of evodrop are made on its way.

    python tools/journeys.py            all journeys, with their files and types
    python tools/journeys.py layer fit  some of them

A file counts if one of its functions is called, or if a called function uses one of its compiled kernels. A type
counts if it is made. The call runs once before it is traced, so that imports and compilation do not count.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import evodrop

SOURCE = Path(evodrop.__file__).parent


class Journey(NamedTuple):
    """The files that a call opens, and the types that it makes, by their names."""

    files: list[str]
    types: list[str]


def follow(call: Callable[[], Any]) -> Journey:
    """Trace one call, in all of its threads."""
    files, types, frames = set[str](), set[type](), dict[CodeType, dict[str, Any]]()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name == "<module>":
            return
        if code.co_filename.startswith(str(SOURCE)) and code.co_filename.endswith(".py"):
            files.add(code.co_filename)
            frames.setdefault(code, frame.f_globals)
        is_tuple = code.co_varnames[:1] == ("_cls",)  # a NamedTuple is made by a lambda
        if code.co_argcount and (is_tuple or code.co_name in ("__init__", "__new__")):
            first = frame.f_locals.get(code.co_varnames[0])
            made = first if isinstance(first, type) else type(first)
            if made.__module__.startswith("evodrop"):
                types.add(made)

    call()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # None is what takes it away
    for code, names in frames.items():
        files |= set(_kernels(code, names, set()))
    return Journey(
        sorted(str(Path(file).relative_to(SOURCE)) for file in files),
        sorted(f"{made.__module__.removeprefix('evodrop.')}.{made.__name__}" for made in types),
    )


def _kernels(code: CodeType, names: dict[str, Any], seen: set[CodeType]) -> Iterator[str]:
    """The files of the compiled functions that a function names, and of those that these name."""
    for name in code.co_names:
        function = getattr(names.get(name), "py_func", None) or getattr(names.get(name), "_pyfunc", None)
        if function is not None and function.__code__ not in seen:
            seen.add(function.__code__)
            if function.__code__.co_filename.startswith(str(SOURCE)):
                yield function.__code__.co_filename
                yield from _kernels(function.__code__, function.__globals__, seen)


def layer() -> Callable[[], Any]:
    """``EvolutionalDropout``, forward and backward."""
    import torch

    from evodrop.nn import EvolutionalDropout

    made, x = EvolutionalDropout(0.5), torch.ones(300, 1000, requires_grad=True)
    return lambda: made(x).sum().backward()


def convert() -> Callable[[], Any]:
    """``convert_dropout(model, "dropconnect")``."""
    from torch import nn

    from evodrop.nn import convert_dropout

    layers = nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)
    return lambda: convert_dropout(nn.Sequential(*layers[:2], nn.Dropout(0.5), layers[2]), "dropconnect")


def fit() -> Callable[[], Any]:
    """``DropoutSGDClassifier().fit`` on sparse data."""
    import numpy as np
    import scipy.sparse as sp

    from evodrop.linear import DropoutSGDClassifier

    X = sp.random(200, 50, 0.2, format="csr", random_state=0)
    y = np.arange(200) % 2
    return lambda: DropoutSGDClassifier(random_state=0).fit(X, y)


def compare() -> Callable[[], Any]:
    """``evodrop compare`` to its report."""
    from evodrop.lab.cli import app

    def call() -> None:
        with tempfile.TemporaryDirectory() as folder:
            words = "--methods standard,evolutional --epochs 1 --seeds 2 --jobs 1"
            app(["compare", *words.split(), "--out", folder], standalone_mode=False)

    return call


JOURNEYS = {"layer": layer, "fit": fit, "compare": compare, "convert": convert}


def main(names: list[str]) -> None:
    for name in names or JOURNEYS:
        journey = follow(JOURNEYS[name]())
        print(f"{name}: {JOURNEYS[name].__doc__} {len(journey.files)} files, {len(journey.types)} types")
        print("  files:", *journey.files)
        print("  types:", *journey.types)


if __name__ == "__main__":
    main(sys.argv[1:])
