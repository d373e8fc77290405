"""The estimate in docs/scaling.md: its numbers are what the formulas give, with rates that are measured and without."""

from __future__ import annotations

import json
import re
import sys

import pytest
import test_docs

PAGE = (test_docs.DOCS / "scaling.md").read_text(encoding="utf-8")
ESTIMATE = PAGE[PAGE.index("\n## Larger than we have") :]
RATES = {"linear_nonzeros_per_second": 1e8, "all_reduce_seconds": 1e-3, "dask_seconds_per_round": 0.1}


@pytest.fixture
def blocks(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(test_docs.DOCS), *sys.path])
    import scaling_blocks

    return scaling_blocks


@pytest.fixture
def rates(blocks, monkeypatch, tmp_path):
    """Set the rates to others than those of docs/scaling_rates.json."""

    def write(found):
        monkeypatch.setattr(blocks, "RATES", tmp_path / "rates.json")
        blocks.RATES.write_text(json.dumps(found), encoding="utf-8")

    return write


def test_every_number_is_what_the_code_gives():
    run = test_docs.python("scaling.py", "--check")
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_block_is_in_the_estimate_and_no_result_outside_of_one(blocks):
    assert sorted(re.findall(test_docs.BLOCK, PAGE, flags=re.DOTALL)) == blocks.__all__
    assert sorted(re.findall(test_docs.BLOCK, ESTIMATE, flags=re.DOTALL)) == blocks.__all__
    prose = re.sub(rf"{test_docs.BLOCK}|```.*?```", "", ESTIMATE, flags=re.DOTALL)
    assert len(prose) > 2000
    assert re.findall(r"\d[.,]\d|\d *%", prose) == []


def test_the_network_is_resnet_50(blocks):
    """The published counts: 25,557,032 parameters and 4.09 thousand million multiplications a picture."""
    assert blocks.resnet_weights() == 25_557_032
    assert round(blocks.resnet_operations() / 6e9, 2) == 4.09
    assert blocks.resnet_units(whole_channels=True) == [256] * 3 + [512] * 4 + [1024] * 6 + [2048] * 3 + [2048]


def test_shares_follow_the_formulas(blocks, rates):
    rates(RATES)
    assert "<" not in "".join(getattr(blocks, name)() for name in blocks.__all__)
    compute = 69_764_100 * 74 / (16 * 1e8)
    talk = (4 + 15) * 16 * 47_237 / (1e9 / 8) + 0.1
    row = next(line for line in blocks.text_share().splitlines() if line.startswith("| 1 Gbit/s"))
    assert row.split(" | ")[2:] == [
        f"{compute:.1f}",
        f"{talk / (compute + talk):.2%}",
        f"{16 * compute / (compute + talk):.1f} |",
    ]
    step, gradient = 256 * blocks.resnet_operations() / 20e12, 2 * 63 / 64 * 4 * 25_557_032 / 12.5e9
    sync = 2 * 63 / 64 * 8 * 17_169 / 12.5e9 + 17 * 1e-3
    row = next(line for line in blocks.resnet_share().splitlines() if line.startswith("| 20 | 100 Gbit/s"))
    assert row.split(" | ")[-1] == f"{sync / (step + gradient + sync):.2%} |"


def test_a_rate_that_is_not_measured_leaves_its_name(blocks, rates):
    rates({**RATES, "all_reduce_seconds": None, "dask_seconds_per_round": None})
    assert blocks.rates().count("`<all_reduce_seconds>`") == 1
    assert blocks.text_share().count("`<dask_seconds_per_round>`") == 9
    assert blocks.resnet_share().count("`<all_reduce_seconds>`") == 6
    assert "<linear" not in blocks.text_share()


@pytest.mark.parametrize(
    "wrong", [{}, {**RATES, "all_reduce_seconds": -1}, {**RATES, "more": 1}, {**RATES, "all_reduce_seconds": "1"}]
)
def test_wrong_rates_are_named(blocks, rates, wrong):
    rates(wrong)
    with pytest.raises(SystemExit, match=r"rates.json holds .* but it takes a positive number or null for each of"):
        blocks.rates()
