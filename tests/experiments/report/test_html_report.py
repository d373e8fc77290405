from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser

import pytest
import tiny
from synthetic import curve, layer, record, write_errors, write_realistic, write_run

from evodrop.experiments.claims.outcomes import outcomes_of
from evodrop.experiments.curves import read_curves
from evodrop.experiments.figures.panels import find_panel
from evodrop.experiments.plotting import COLOURS, SPARE
from evodrop.experiments.report.markup import element
from evodrop.experiments.report.page import make_page, write_report
from evodrop.experiments.report.plots import ON_DARK, ON_LIGHT, POINTS, curve_plots, layer_plots, ranking_plots
from evodrop.experiments.report.sections import claims_section
from evodrop.experiments.report.tables import verdict_table
from evodrop.experiments.store import RecordsError, keep_records

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def runs(tmp_path):
    for seed in range(3):
        write_realistic(tmp_path / "runs", "standard", seed, speed=8, floor=0.02)
        write_realistic(tmp_path / "runs", "evolutional", seed, speed=12, floor=0.015)
    return tmp_path / "runs"


class Page(HTMLParser):
    """The words of a page, its ids, and whether its elements are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.words, self.ids, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


def report(folders, out, command="", panel=None):
    return write_report(outcomes_of(read_curves(folders), panel), out, command)


def without_plotly(path):
    """The page less its largest script, which is not ours."""
    return re.sub(r"<script>\s*/\*\*.*?</script>", "", path.read_text(), count=1, flags=re.DOTALL)


def test_the_report_is_one_whole_page(runs, tmp_path):
    path = report([runs], tmp_path, command="evodrop reproduce fig2-mnist", panel=find_panel("fig2-mnist"))
    assert path == tmp_path / "report.html"
    text = without_plotly(path)
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", text)
    assert "{{" not in re.sub("<script>.*</script>", "", text, flags=re.DOTALL)
    assert path.read_text().count("plotly.js v") == 1
    words = " ".join(page.words)
    for expected in (
        "evodrop reproduce fig2-mnist",
        "made up",  # the processor
        "Shorter than the protocol:",
        "step sizes tried: 0.005, not 0.001, 0.005, 0.01, 0.1",
        "not run: evolutional, matched noise",
        "On MNIST, the training error falls faster with evolutional dropout than with standard dropout.",
        "training error on clean data",
        "training error with the noise on",
        "What the paper leaves open",
        "all 6 runs",
    ):
        assert expected in words


def test_the_table_has_the_numbers_of_the_summary(runs, tmp_path):
    outcome = outcomes_of(read_curves([runs]))[0]
    words = " ".join(Page(without_plotly(report([runs], tmp_path, command="evodrop compare 'a b'"))).words)
    assert "evodrop compare 'a b'" in words
    for row in outcome.summaries:
        assert f"{100 * row.test_error.mean:.2f}%\N{NO-BREAK SPACE}±" in words
        assert f"{row.to_training.iterations.mean:,.0f}" in words
    assert "no claim about these runs" in words


def test_nothing_from_a_record_is_html(tmp_path):
    write_errors(tmp_path / "runs", [0.5, 0.4], dataset=EVIL[:20], network="n", method="standard")
    folder = write_run(
        tmp_path / "runs",
        [record(1, test_error=0.5, clean_error=0.5, layers=[layer(EVIL, 0.5)])],
        dataset="d",
        network=EVIL[:9],
        method="uniform",
    )
    header, *rest = (folder / "records.jsonl").read_text().splitlines()
    fields = json.loads(header)
    fields["run"]["method"] = fields["environment"]["cpu"] = fields["git"]["commit"] = EVIL
    (folder / "records.jsonl").write_text("\n".join([json.dumps(fields), *rest]) + "\n")
    text = without_plotly(report([tmp_path / "runs"], tmp_path, command=EVIL))
    assert "<script>alert" not in text
    assert "<img" not in text
    assert text.count("</script>") == 2  # the data and the page's own
    Page(text)


def test_a_part_with_a_place_in_it_is_not_filled(runs, tmp_path):
    words = Page(without_plotly(report([runs], tmp_path, command="{{data}} {{nothing}}"))).words
    assert "{{data}} {{nothing}}" in words


def test_every_plot_has_its_place_and_every_place_its_plot(runs, tmp_path):
    text = report([runs], tmp_path).read_text()
    data = re.search(r'<script type="application/json" id="plots">(.*?)</script>', text, re.DOTALL)[1]
    plots = json.loads(data)
    assert {plot["id"] for plot in plots} == set(re.findall(r'<div id="([^"]*)" class="plot"', text))
    assert len(plots) == 3 + 5


def test_curves_are_the_bands_and_linear_models_have_no_layers(tmp_path):
    outcome = outcomes_of([curve(tmp_path, [0.5, 0.3], network="linear", method="data-dependent")])[0]
    plots = list(curve_plots(outcome, "p"))
    assert [plot["title"] for plot in plots] == ["training error on clean data", "test error"]  # no noisy one
    line = plots[0]["lines"][0]
    assert (line["x"], line["y"], line["low"]) == ([100.0, 200.0], [0.5, 0.3], [0.5, 0.3])
    assert plots[0]["clock"] == "examples seen"
    assert list(layer_plots(outcome, "p")) == []
    assert "These runs have no dropout layers." in make_page([outcome], "")


def test_long_curves_are_thinned_but_keep_their_ends(tmp_path):
    errors = [0.5] * (3 * POINTS)
    line = next(curve_plots(outcomes_of([curve(tmp_path, errors)])[0], "p"))["lines"][0]
    assert len(line["x"]) == len(line["y"]) == POINTS
    assert (line["x"][0], line["x"][-1]) == (100.0, 100.0 * len(errors))


def test_unfinished_runs_are_told_at_the_top(tmp_path):
    page = make_page(outcomes_of([curve(tmp_path, [0.5], "running")]), "")
    assert "Not finished: </strong>1 of 1 runs." in page


def test_a_report_that_fails_leaves_nothing(runs, tmp_path, monkeypatch):
    (tmp_path / "report.html").write_text("old")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        report([runs], tmp_path / "nowhere" / "a.html")
    with pytest.raises(RecordsError, match="there is no run in"):
        report([tmp_path / "nothing"], tmp_path)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        report([runs], tmp_path)
    assert (tmp_path / "report.html").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "runs"]


def test_runs_without_a_record_make_no_report(tmp_path):
    write_run(tmp_path / "runs", [])
    with pytest.raises(ValueError, match="nothing to report yet"):
        report([tmp_path / "runs"], tmp_path)


def luminance(colour):
    """Relative luminance as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("page", "stands_for"), [("#ffffff", ON_LIGHT), ("#161618", ON_DARK)])
def test_every_line_stands_out_from_its_page(page, stands_for):
    """WCAG asks for a contrast of 3 between a graphic and what is around it."""
    for colour in {*COLOURS.values(), *SPARE}:
        light, dark = sorted((luminance(stands_for.get(colour, colour)), luminance(page)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, colour


def test_elements_escape_what_is_not_html():
    assert element("a", "<", element("b", "&"), href='"x"', data_at="1", open=True, id=None, hidden=False) == (
        '<a href="&quot;x&quot;" data-at="1" open>&lt;<b>&amp;</b></a>'
    )
    assert element("input", type="checkbox") == '<input type="checkbox">'


def test_what_the_training_writes_the_report_reads(tmp_path):
    for method in ("standard", "evolutional", "none"):
        training = tiny.training(method=method, epochs=2)
        list(keep_records(training, tmp_path / "runs" / training.run.id))
    outcome = outcomes_of(read_curves([tmp_path / "runs"]))[0]
    assert [row.label for row in outcome.summaries] == ["none", "standard", "evolutional"]
    assert all(row.test_error.n == 1 and row.seconds > 0 and not row.unfinished for row in outcome.summaries)
    assert len(list(curve_plots(outcome, "p"))) == 3
    assert len(list(layer_plots(outcome, "p"))) == 2 * 5
    page = Page(without_plotly(report([tmp_path / "runs"], tmp_path, command="evodrop compare")))
    assert page.open == []


def test_a_step_at_the_edge_of_the_grid_is_told_first(tmp_path):
    for lr, error in ((0.1, 0.2), (0.01, 0.5)):
        write_errors(tmp_path / "runs", [error], lr=lr)
    page = Page(report([tmp_path / "runs"], tmp_path).read_text())
    at = page.words.index("At the edge of the grid: ")
    assert page.words[at + 1] == "standard: step 0.1 is the largest of 2 tried; a larger one may be faster."


@pytest.mark.parametrize(
    ("dataset", "words", "title"),
    [
        ("rcv1", "The paper makes 3 claims here.", "claims of the paper"),
        (
            "20news",
            "These data are not in the paper: its claims about others are judged on them, 3 in all.",
            "claims of the paper, asked of other data",
        ),
    ],
)
def test_claims_are_not_put_into_the_papers_mouth(tmp_path, dataset, words, title):
    run = curve(tmp_path, [0.5], dataset=dataset, network="linear")
    outcomes = outcomes_of([run], find_panel(f"fig1-{dataset}"))
    assert f"<p>{words} Not measured: 3.</p>" in claims_section(outcomes)
    assert verdict_table(outcomes[0].judgements).title == title


def test_many_contenders_are_ranked_and_few_are_not(tmp_path):
    methods = ["standard", *(f"m{number}" for number in range(8))]
    curves = [curve(tmp_path, [0.5, 0.3 - 0.01 * at], method=method) for at, method in enumerate(methods)]
    (plot,) = ranking_plots(outcomes_of(curves)[0], "ranking")
    assert [row["label"] for row in plot["rows"]] == methods[::-1]  # the last has the least error
    assert [row["baseline"] for row in plot["rows"]] == [False] * 8 + [True]
    assert plot["rows"][0]["interval"] == (pytest.approx(0.22), None, None)  # one seed has no interval
    assert plot["rows"][0]["seeds"] == [pytest.approx(0.22)]
    assert not list(ranking_plots(outcomes_of(curves[:8])[0], "ranking"))
    assert not list(ranking_plots(outcomes_of(curves, find_panel("fig2-mnist"))[0], "ranking"))
