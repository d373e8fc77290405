"""What a report shows of dropout layers."""

from __future__ import annotations

import pytest
from synthetic import layer, record, write_realistic, write_run

from evodrop.experiments.claims.outcomes import outcomes_of
from evodrop.experiments.curves import read_curves
from evodrop.experiments.report.page import make_page
from evodrop.experiments.report.plots import layer_plots


def test_layers_are_shares_of_their_units_and_maps_of_their_probabilities(tmp_path):
    seen = layer("drop", 0.5) | {"probs": [0.0, 1 / 64, 10 / 64]}
    silent = seen | {"noise": None}
    records = [record(1, layers=[silent]), record(2, layers=[seen]), record(3, status="finished")]
    write_run(tmp_path, records, method="evolutional")
    plots = {plot["id"]: plot for plot in layer_plots(outcomes_of(read_curves([tmp_path]))[0], "p")}
    assert plots["p-0-dead"]["lines"][0]["y"] == pytest.approx([seen["dead"] / 64] * 2, rel=1e-4)
    assert plots["p-0-effective"]["lines"][0]["y"] == pytest.approx([seen["effective"] / 64] * 2, rel=1e-4)
    assert plots["p-0-noise"]["lines"][0]["y"] == [None, pytest.approx(seen["noise"])]
    heat = plots["p-0-probs"]["maps"][0]
    assert (heat["x"], heat["y"], heat["z"]) == ([100.0, 200.0], [0.0, 50.0, 100.0], [[None] * 2, [0.0] * 2, [1.0] * 2])


def test_what_is_never_known_has_no_line(tmp_path):
    unknown = layer("drop", 0.5) | {"noise": None, "kept": None}
    write_run(tmp_path, [record(1, layers=[unknown], status="finished")], method="gaussian")
    (alone,) = outcomes_of(read_curves([tmp_path]))
    assert [plot["id"] for plot in layer_plots(alone, "p")] == ["p-0-dead", "p-0-effective", "p-0-probs"]
    assert "Layer drop" in make_page([alone], "")
    write_run(tmp_path, [record(1, layers=[layer("drop", 0.5)], status="finished")], method="evolutional")
    plots = {plot["id"]: plot for plot in layer_plots(outcomes_of(read_curves([tmp_path]))[0], "p")}
    assert [line["label"] for line in plots["p-0-kept"]["lines"]] == ["evolutional"]
    assert [line["label"] for line in plots["p-0-dead"]["lines"]] == ["evolutional", "gaussian"]


def test_the_map_opens_on_the_challenger(tmp_path):
    for method in ("standard", "evolutional", "water-filling"):
        write_realistic(tmp_path, method, 0, 6, 0.02)
    (outcome,) = outcomes_of(read_curves([tmp_path]))
    *_, plot = layer_plots(outcome, "p")
    assert plot["maps"][plot["shown"]]["label"] == outcome.challenger == "evolutional"
    assert '<option value="1" selected>evolutional</option>' in make_page([outcome], "")
    (alone,) = outcomes_of([run for run in outcome.runs if run.method == "standard"])
    assert alone.challenger is None
    assert [*layer_plots(alone, "p")][-1]["shown"] == 0
