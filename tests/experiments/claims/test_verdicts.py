from __future__ import annotations

import pytest
from synthetic import curve

from evodrop.experiments.claims.intervals import Interval
from evodrop.experiments.claims.outcomes import outcomes_of
from evodrop.experiments.claims.statements import Claim, claims_of
from evodrop.experiments.claims.summaries import Summary, Target
from evodrop.experiments.claims.verdicts import check, judge, judge_panel, loss_in_words, read_verdicts, write_verdicts
from evodrop.experiments.figures.panels import find_panel

UNKNOWN = Interval(None, None, None, 0)
REACHED = Target(UNKNOWN, 3, 3, UNKNOWN)


def claim(**changes):
    fields = {"id": "c", "panel": "fig2-mnist", "place": "", "words": "", "metric": "test error"}
    return Claim(**fields | changes)


def summary(**changes):
    row = Summary("e", 0.1, (0, 1, 2), *[UNKNOWN] * 7, *[REACHED] * 3, None, 0, 0)
    return row._replace(**changes)


def verdict(of, row, baseline=None):
    return judge(of, row, summary() if baseline is None else baseline).verdict


@pytest.mark.parametrize(
    ("low", "high", "below", "expected"),
    [
        (-0.3, -0.1, 0.0, "holds"),
        (-0.3, 0.1, 0.0, "inconclusive"),
        (0.1, 0.3, 0.0, "does not hold"),
        (0.0, 0.0, 0.0, "does not hold"),  # a tie is not faster
        (-0.3, -0.1, -0.1, "inconclusive"),
        (-0.3, -0.11, -0.1, "holds"),
        (-0.05, -0.01, -0.1, "does not hold"),  # better, but by less than claimed
    ],
)
def test_less_is_judged_by_the_whole_interval(low, high, below, expected):
    row = summary(test_change=Interval((low + high) / 2, low, high, 3))
    assert verdict(claim(below=below), row) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.01, 0.02, "holds"),
        (-0.03, 0.01, "inconclusive"),
        (-0.5, 0.5, "inconclusive"),
        (0.021, 0.04, "does not hold"),
        (-0.04, -0.03, "does not hold"),  # much better is not comparable either
    ],
)
def test_alike_is_judged_by_the_whole_interval(low, high, expected):
    row = summary(test_difference=Interval((low + high) / 2, low, high, 3))
    assert verdict(claim(metric="test difference", within=0.02), row) == expected


def test_one_seed_decides_nothing():
    found = judge(claim(), summary(test_change=Interval(-0.9, None, None, 1)), summary())
    assert (found.verdict, found.measured) == (
        "inconclusive",
        "test error at the end: -90.0% in one seed, which has no interval",
    )


def test_what_diverged_or_has_no_partner_decides_nothing():
    found = judge(claim(), summary(test_change=Interval(None, None, None, 3)), summary())
    assert (found.verdict, found.measured) == (
        "inconclusive",
        "test error at the end: unknown, since a run diverged, or the baseline's is 0",
    )
    assert "no seed was run with both" in judge(claim(), summary(), summary()).measured


@pytest.mark.parametrize("who", ["challenger", "baseline"])
def test_what_is_not_finished_decides_nothing(who):
    row, late = summary(test_change=Interval(-0.5, -0.6, -0.4, 3)), summary(unfinished=2)
    found = judge(claim(), late, row) if who == "challenger" else judge(claim(), row, late)
    assert (found.verdict, found.measured) == ("inconclusive", "2 runs are not finished")


@pytest.mark.parametrize(
    ("asked", "reached", "expected"),
    [(6, 0, "does not hold"), (6, 1, "inconclusive"), (5, 0, "inconclusive"), (1, 0, "inconclusive")],
)
def test_a_target_never_reached_is_not_reached_faster(asked, reached, expected):
    row = summary(to_late_training=Target(UNKNOWN, asked, reached, UNKNOWN))
    found = judge(claim(metric="training iterations"), row, summary())
    assert found.verdict == expected
    assert f"reached in {reached} of {asked} seeds" in found.measured


def test_what_was_not_run_is_not_measured():
    assert judge(claim(), None, summary()).verdict == judge(claim(), summary(), None).verdict == "not measured"
    found = judge_panel(find_panel("fig1-bn"), {})
    assert [item.verdict for item in found] == ["not measured"] * len(claims_of("fig1-bn"))


def test_a_panel_is_judged_from_records_to_words(tmp_path):
    panel = find_panel("fig2-mnist")
    pace = {"standard": (0.5, 0.3, 0.2), "evolutional": (0.3, 0.2, 0.2)}
    curves = [
        curve(tmp_path, [0.9, *(error + 0.01 * seed for error in errors)], method=method, seed=seed)
        for method, errors in pace.items()
        for seed in range(3)
    ]
    found = {item.claim.id: item for item in outcomes_of(curves, panel)[0].judgements}
    assert found["fig2-mnist-test-speed"].verdict == "holds"
    # Averages 0.475 and 0.4, 0.4825 and 0.4075, 0.49 and 0.415. Their ratio is R = 1.2225 / 1.4475, and the residuals
    # (1 - R) 0.0075 apart, over the mean of 0.4825: so is the spread, and t of 2 degrees is 4.3027.
    half = 100 * 4.3027 * (1 - 1.2225 / 1.4475) * 0.0075 / 0.4825 / 3**0.5
    assert found["fig2-mnist-test-speed"].measured == (
        f"test error averaged over the run: -15.5% (95% interval {-15.544 - half:+.1f} to {-15.544 + half:+.1f}, "
        "3 seeds)"
    )


def test_faster_asks_for_no_target(tmp_path):
    """It falls at once, and ends above the baseline's best, which it never reaches."""
    curves = [curve(tmp_path, [0.9, 0.8, 0.5, 0.1 + 0.01 * seed], seed=seed) for seed in range(3)]
    curves += [curve(tmp_path, [0.2, 0.2, 0.2, 0.2], method="evolutional", seed=seed) for seed in range(3)]
    (outcome,) = outcomes_of(curves, find_panel("fig2-mnist"))
    assert outcome.summaries[1].to_training.reached == 0
    assert [item.verdict for item in outcome.judgements] == ["holds", "holds"]


def test_what_we_added_is_told_beside_a_claim(tmp_path):
    curves = [curve(tmp_path, [0.5, 0.4], seed=seed) for seed in range(3)]
    for match, error in (("draws", 0.6), ("noise", 0.9)):
        curves += [curve(tmp_path, [error, error], method="evolutional", match=match, seed=seed) for seed in range(3)]
    found = outcomes_of(curves, find_panel("fig2-mnist"))[0].judgements[0]
    assert found.verdict == "does not hold"
    words = "training error averaged over the run: +100.0% (95% interval +100.0 to +100.0, 3 seeds)"
    assert found.beside == (("evolutional, matched noise", words),)


def judged(verdict):
    return judge(claim(), summary(), summary())._replace(verdict=verdict)


@pytest.mark.parametrize(
    ("now", "words"),
    [("does not hold", "no longer holds: "), ("inconclusive", "can no longer be confirmed: ")],
)
def test_the_check_finds_what_held_and_holds_no_more(now, words):
    (lost,) = check([judged(now)], {"c": "holds"})
    assert lost.verdict == now
    assert loss_in_words(lost).startswith(words)
    for then in ("does not hold", "inconclusive", "not measured"):
        assert check([judged(now)], {"c": then}) == []
    assert check([judged(now)], {}) == []
    assert check([judged("holds"), judged("not measured")], {"c": "holds"}) == []


def test_verdicts_can_be_kept(tmp_path):
    write_verdicts([judged("holds")], tmp_path / "verdicts.json")
    assert read_verdicts(tmp_path / "verdicts.json") == {"c": "holds"}


@pytest.mark.parametrize("text", ["", "[]", '{"c": 1}', '{"c": {}}', "[" * 100_000, '{"c": {"verdict": "maybe"}}'])
def test_files_that_hold_no_verdicts_are_named(tmp_path, text):
    (tmp_path / "v.json").write_text(text)
    with pytest.raises(ValueError, match=r"v\.json.*(holds no verdicts|'maybe')"):
        read_verdicts(tmp_path / "v.json")
