"""Rates that change as training goes on."""

from __future__ import annotations

import pytest
from torch import nn

from evodrop.nn import BernoulliDropout, EvolutionalDropout, RateSchedule, set_rate


def model():
    return nn.Sequential(nn.Dropout(0.4), EvolutionalDropout(0.2), BernoulliDropout(0.5))


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({"early": 2}, [1, 1, 0, 0]),
        ({"late": 2}, [0, 0, 1, 1]),
        ({"linear": 2}, [1, 0.5, 0, 0]),
    ],
)
def test_rates_follow_the_schedule_and_stay_at_its_end(options, shares):
    network = model()
    schedule = RateSchedule(network, **options)
    for share in shares:
        assert [layer.p for layer in network] == [share * 0.4, share * 0.2, share * 0.5]
        assert list(schedule.get_last_rate().values()) == [layer.p for layer in network]
        schedule.step()


def test_a_state_goes_on_in_a_fresh_model():
    first, second = model(), model()
    schedule = RateSchedule(first, linear=10)
    for _ in range(3):
        schedule.step()
    resumed = RateSchedule(second, linear=4)
    resumed.load_state_dict(schedule.state_dict())
    for _ in range(3):
        assert [layer.p for layer in first] == [layer.p for layer in second]
        schedule.step(), resumed.step()


def test_set_rate_counts_and_chooses():
    network = model()
    assert set_rate(network, 0.3) == 3
    assert [layer.p for layer in network] == [0.3, 0.3, 0.3]
    assert set_rate(network, 0.1, only=lambda name, _: name == "1") == 1
    assert [layer.p for layer in network] == [0.3, 0.1, 0.3]


def test_what_is_wrong_is_a_sentence():
    for rate in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"rate|p is"):
            set_rate(model(), rate)
    with pytest.raises(ValueError, match="no dropout layer"):
        set_rate(nn.Sequential(nn.Linear(2, 2)), 0.5)
    for options in ({}, {"early": 1, "late": 1}, {"early": 0}):
        with pytest.raises(ValueError, match="early"):
            RateSchedule(model(), **options)
    with pytest.raises(ValueError, match="dropout layers"):
        RateSchedule(model(), early=1).load_state_dict(RateSchedule(model()[:2], early=1).state_dict())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "cosine"}, "kind 'cosine'"),
        ({"steps": 0}, "steps is 0"),
        ({"last_step": -1}, "last_step is -1"),
        ({"rates": {"0": 0.4, "1": float("nan"), "2": 0.5}}, "dropout rate is nan"),
        ({"rates": None}, r"lacks \['rates'\]"),
    ],
)
def test_a_state_that_is_wrong_changes_nothing(changed, message):
    network = model()
    schedule = RateSchedule(network, linear=10)
    before = schedule.state_dict()
    state = {name: value for name, value in (before | changed).items() if value is not None}
    with pytest.raises(ValueError, match=message):
        schedule.load_state_dict(state)
    assert schedule.state_dict() == before
    assert [layer.p for layer in network] == [0.4, 0.2, 0.5]


def test_a_model_that_is_none_is_named():
    with pytest.raises(TypeError, match="the model is None"):
        set_rate(None, 0.5)
