from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser

import pytest
from helpers import tiny
from helpers.synthetic import curve, layer, record, write_errors, write_realistic, write_run

from evodrop.lab.curves import read_curves
from evodrop.lab.experiment import write_findings
from evodrop.lab.figures import series
from evodrop.lab.panels import find_panel
from evodrop.lab.report import make_page, sentences
from evodrop.lab.store import RecordsError, keep_records
from evodrop.lab.verdicts import outcomes_of

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
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


def report(folders, out, command="", panel=None):
    (out / "report.html").write_text(make_page(outcomes_of(read_curves(folders), panel), command))
    return out / "report.html"


def without_plotly(path):
    """The page less its largest script, which is not ours."""
    return re.sub(r"<script>\s*/\*\*.*?</script>", "", path.read_text(), count=1, flags=re.DOTALL)


def test_the_report_is_one_whole_page(runs, tmp_path):
    path = report([runs], tmp_path, command="evodrop reproduce fig2-mnist", panel=find_panel("fig2-mnist"))
    text = without_plotly(path)
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", text)
    assert "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:" in text
    assert "{{" not in re.sub("<script>.*?</script>", "", text, flags=re.DOTALL)
    assert path.read_text().count("plotly.js v") == 1
    words = " ".join(page.words)
    for expected in (
        "evodrop reproduce fig2-mnist",
        "6 runs: python 3.11, cpu made up, commit abc",
        "mnist: 28x28 handwritten digits. https://yann.lecun.com/exdb/mnist/; CC BY-SA 3.0",
        "step sizes tried: 0.005, not 0.001, 0.005, 0.01, 0.1",
        "not run: evolutional, matched noise",
        "On MNIST, the training error falls faster with evolutional dropout than with standard dropout.",
        "training error on clean data",
        "training error with the noise on",
        "What the paper leaves open",
        "Every run (6)",
    ):
        assert expected in words


def test_the_verdict_stands_before_everything_else(runs, tmp_path):
    (outcome,) = outcomes_of(read_curves([runs]), find_panel("fig2-mnist"))
    page = Page(make_page([outcome], ""))
    words = [text.strip() for text in page.words if text.strip()]
    assert words[:4] == [outcome.title, outcome.title, "Figure 2(a)", " ".join(sentences(outcome))]
    assert [name for name in page.ids if "-" not in name] == ["table", "claims", "curves", "layers", "origin"]


def test_the_table_has_the_numbers_of_the_summary(runs, tmp_path):
    outcome = outcomes_of(read_curves([runs]))[0]
    page = Page(without_plotly(report([runs], tmp_path, command="evodrop compare 'a b'")))
    words = " ".join(page.words)
    assert "evodrop compare 'a b'" in words
    for row in outcome.summaries:
        assert f"{100 * row.test_error[0]:.2f}%\N{NO-BREAK SPACE}±" in words
        assert f"{row.targets['to_training'][0]:,.0f}" in words
    assert "claims" not in page.ids  # the paper makes none about these runs


def test_several_data_sets_stand_under_their_names(tmp_path):
    outcomes = outcomes_of([curve(tmp_path, [0.5], dataset=name) for name in ("mnist", "svhn")])
    words = [text.strip() for text in Page(make_page(outcomes, "")).words]
    assert "dropout on 2 data sets" in words
    assert words.count("dropout on svhn") == 4  # with its verdict, its table, its curves and its layers


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
    assert text.count("</script>") == text.count("<script") == text.count("Plotly.newPlot(")
    assert Page(text).open == []


def test_words_that_look_like_a_template_stay_words(runs, tmp_path):
    words = Page(without_plotly(report([runs], tmp_path, command="{{ plotly }} {% raw %}"))).words
    assert "{{ plotly }} {% raw %}" in words


def test_every_plot_is_drawn_once(runs, tmp_path):
    (outcome,) = outcomes_of(read_curves([runs]))
    page = Page(make_page([outcome], ""))
    assert sorted(name for name in page.ids if "-" in name) == sorted(
        f"{kind}-0-{1 if layer else 0}" for layer, kind in series(outcome)
    )


def test_linear_models_count_examples_and_have_no_layers(tmp_path):
    (outcome,) = outcomes_of([curve(tmp_path, [0.5, 0.3], network="linear", method="data-dependent")])
    assert [kind for _, kind in series(outcome)] == ["clean", "test"]  # no noisy one
    page = make_page([outcome], "")
    assert "These runs have no dropout layers." in page
    assert '"text":"examples seen"' in page


def test_unfinished_runs_stand_at_the_top(tmp_path):
    page = make_page(outcomes_of([curve(tmp_path, [0.5], "running")]), "")
    assert "<strong>Not finished:</strong> 1 of 1 run." in page


def test_a_report_that_fails_leaves_the_old_one(runs, tmp_path, monkeypatch):
    (tmp_path / "report.html").write_text("old")
    with pytest.raises(RecordsError, match="there is no run in"):
        write_findings([tmp_path / "nothing"], tmp_path, "", None)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_findings([runs], tmp_path, "", None)
    assert (tmp_path / "report.html").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "runs"]


def test_runs_without_a_record_make_no_report(tmp_path):
    write_run(tmp_path / "runs", [])
    with pytest.raises(ValueError, match="nothing to report yet"):
        report([tmp_path / "runs"], tmp_path)


def test_what_the_training_writes_the_report_reads(tmp_path):
    for method in ("standard", "evolutional", "none"):
        training = tiny.training(method=method, epochs=2)
        list(keep_records(training, tmp_path / "runs" / training.run.id))
    outcome = outcomes_of(read_curves([tmp_path / "runs"]))[0]
    assert [row.label for row in outcome.summaries] == ["none", "standard", "evolutional"]
    assert all(len(row.seeds) == 1 and row.seconds > 0 and not row.unfinished for row in outcome.summaries)
    assert len(series(outcome)) == 3 + 2 * 5
    page = Page(without_plotly(report([tmp_path / "runs"], tmp_path, command="evodrop compare")))
    assert page.open == []


def test_a_step_at_the_edge_of_the_grid_stands_first(tmp_path):
    for lr, error in ((0.1, 0.2), (0.01, 0.5)):
        write_errors(tmp_path / "runs", [error], lr=lr)
    words = " ".join(Page(report([tmp_path / "runs"], tmp_path).read_text()).words)
    said = "At the edge of the grid:  standard: step 0.1 is the largest of 2 tried; a larger one may be faster."
    assert 0 < words.index(said) < words.index("All methods")


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("rcv1", "Of 3 claims of the paper, 3 were not measured."),
        ("20news", "Of 3 claims of the paper, asked of other data, 3 were not measured."),
    ],
)
def test_claims_are_not_put_into_the_papers_mouth(tmp_path, dataset, words):
    run = curve(tmp_path, [0.5], dataset=dataset, network="linear")
    page = make_page(outcomes_of([run], find_panel(f"fig1-{dataset}")), "")
    assert words in page
    assert ("These data are not in the paper" in page) == (dataset == "20news")
