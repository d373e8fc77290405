"""Models of other libraries. They are not in the environment of the other tests: `make integration` installs them."""

from __future__ import annotations

import importlib.util
import sys
import types

import pytest
import torch

HERE = all(importlib.util.find_spec(name) for name in ("timm", "transformers", "peft", "lightning", "skorch"))
collect_ignore_glob = [] if HERE else ["*.py"]


@pytest.fixture(autouse=True)
def _same_seed_for_every_test():
    torch.manual_seed(0)


class _Members(type):
    """A class with whatever members are asked of it: their names."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Anything(types.ModuleType):
    """A module that has whatever is asked of it: timm imports torchvision for data that these tests do not load."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}", _Members(name, (), {}))


def import_timm():
    """timm, without torchvision."""
    parts = ("transforms", "transforms.functional", "ops", "ops.misc", "datasets", "models", "utils", "io")
    names = ["torchvision", *(f"torchvision.{part}" for part in parts)]
    missing = [name for name in names if name not in sys.modules]
    sys.modules |= {name: _Anything(name) for name in missing}
    try:
        import timm
    finally:
        for name in missing:
            del sys.modules[name]
    return timm
