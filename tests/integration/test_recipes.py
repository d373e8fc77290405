"""Every example of docs/real-models.md runs, and swaps what its library trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import import_timm
from torch import nn

from evodrop.nn.layers import Evolving

PAGE = (Path(__file__).parents[2] / "docs" / "real-models.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^## (.*?)\n.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


def test_the_page_has_an_example_for_each_library():
    libraries = ["timm", "Trainer", "GPT-2", "Llama", "peft", "Lightning", "accelerate", "skorch"]
    assert all(any(library in title for title in EXAMPLES) for library in libraries)
    assert len(EXAMPLES) == PAGE.count("```python") == len(libraries)


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_runs_and_its_dropouts_draw(title, tmp_path, monkeypatch):
    import_timm()
    monkeypatch.chdir(tmp_path)
    drawn = []
    forward = Evolving.forward

    def counted(layer, x):
        drawn.append(layer.training)
        return forward(layer, x)

    monkeypatch.setattr(Evolving, "forward", counted)
    exec(compile(EXAMPLES[title], title, "exec"), {"__name__": "example", "nn": nn})
    assert any(drawn)
