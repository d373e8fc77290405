from __future__ import annotations

import pytest

from evodrop.lab.claims import CLAIMS, METRICS
from evodrop.lab.panels import OTHER_DATA, PANELS
from evodrop.lab.summary import Summary


def test_claims_are_about_panels_and_things_that_are_measured():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.metric in METRICS
        assert claim.words.endswith(".")
        assert claim.below <= 0
        labels = {variant.label for variant in PANELS[claim.panel].variants}
        assert {claim.method, claim.against} - {None} <= labels
    assert {claim.panel for claim in CLAIMS} == set(PANELS)
    assert set(METRICS) <= set(Summary._fields)


def test_claims_of_the_paper_are_set_apart_from_those_on_other_data():
    for claim in CLAIMS:
        elsewhere = claim.panel.startswith(("fig1-20news", "fig1-reuters52", "fig1-rcv1-part"))
        assert elsewhere == (PANELS[claim.panel].dataset in OTHER_DATA)
        assert claim.place.startswith("Section 5.") == claim.in_paper != elsewhere


def test_the_numbers_of_section_5_2_are_in_it():
    by_id = {claim.id: claim for claim in CLAIMS}
    assert by_id["fig2-cifar100-test-error"].below == -0.1
    for name in ("fig2-cifar100-speed-up", "fig2-cifar100-test-speed-up"):
        assert 1 / (1 + by_id[name].below) == pytest.approx(1.5)  # times the speed
