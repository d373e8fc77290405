from __future__ import annotations

import pytest

from evodrop.experiments.claims.statements import CLAIMS, METRICS, claims_of
from evodrop.experiments.figures.panels import PANELS


def test_claims_are_about_panels_and_things_that_are_measured():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.panel in PANELS
        assert claim.metric in METRICS
        assert claim.words.endswith(".")
        assert claim.below <= 0
    assert {claim.panel for claim in CLAIMS} == set(PANELS)


def test_claims_of_the_paper_are_told_from_those_on_other_data():
    for claim in CLAIMS:
        elsewhere = claim.panel.startswith(("fig1-20news", "fig1-reuters52", "fig1-rcv1-part"))
        assert claim.place.startswith("Section 5.") == claim.in_paper != elsewhere


def test_the_numbers_of_section_5_2_are_in_it():
    by_id = {claim.id: claim for claim in claims_of("fig2-cifar100")}
    assert by_id["fig2-cifar100-test-error"].below == -0.1
    assert 1 / (1 + by_id["fig2-cifar100-speed-up"].below) == pytest.approx(1.5)  # times the speed
