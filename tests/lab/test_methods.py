from __future__ import annotations

import subprocess
import sys

import pytest

from evodrop.lab.methods import LINEAR, LINEAR_METHODS, METHODS, PROPOSED, USUAL, methods_of
from evodrop.nn.zoo import ZOO


def test_networks_take_every_name_of_the_zoo_but_the_one_that_follows_fixed_data():
    assert set(METHODS) - set(ZOO) == {"none", "batchnorm"}
    assert set(ZOO) - set(METHODS) == {"data-dependent"}
    assert set(USUAL) <= set(METHODS)
    assert len(USUAL) == 6


def test_a_linear_model_has_methods_of_its_own():
    assert methods_of(LINEAR) is LINEAR_METHODS
    assert methods_of("mnist") is METHODS
    assert [name in METHODS for name in PROPOSED] == [True, False]
    assert [name in LINEAR_METHODS for name in PROPOSED] == [False, True]
    for name in set(METHODS) & set(LINEAR_METHODS):
        assert METHODS[name][1:3] == LINEAR_METHODS[name][1:3]  # what it uses


@pytest.mark.parametrize("methods", [METHODS, LINEAR_METHODS])
def test_words_are_one_line_for_a_table(methods):
    for method in methods.values():
        assert 10 < len(method.words) < 80
        assert "\n" not in method.words


def test_a_list_of_methods_costs_no_torch():
    code = "import sys, evodrop.lab.methods, evodrop.lab.run; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert answer.strip() == "False"
