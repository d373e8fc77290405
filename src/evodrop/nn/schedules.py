"""Rates that change in training: set them, or let a schedule do so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from evodrop._checks import checked_integer, checked_rate
from evodrop.nn._trace import DROPOUTS

__all__ = ["RateSchedule", "set_rate"]

Only = Callable[[str, nn.Module], bool] | None
KINDS = ("early", "late", "linear")


def set_rate(model: nn.Module, p: float, only: Only = None) -> int:
    """Set the rate of the dropout layers of ``model``, torch's and ours, and return how many were set.

    Layers whose rate is learned, or that have ``k`` or ``keep`` instead of a rate, stay as they are, and so does the
    dropout inside ``nn.LSTM`` and ``nn.MultiheadAttention``.

    Args:
        model: changed in place.
        p: the new rate, in [0, 1).
        only: predicate on (qualified name, module) that a layer has to satisfy.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        >>> set_rate(model, 0.1), model[1]
        (1, Dropout(p=0.1, inplace=False))
    """
    rate, layers = checked_rate(p), _rated(model, only)
    for layer in layers.values():
        layer.p = rate
    return len(layers)


class RateSchedule:
    """Early, late or linearly falling dropout (Liu et al. 2023), by the step.

    Early dropout, at the start of training only, helps models that underfit; late dropout, after a start without any,
    those that overfit. The rates of the layers when the schedule is made are the full ones. Call :meth:`step` once per
    epoch or iteration, as that of a scheduler of ``torch.optim``. After its last change the rate stays, as torch's
    ``LinearLR`` does. Under ``torch.compile`` a new rate compiles the model anew.

    Args:
        model: whose dropout layers follow the schedule; :func:`set_rate` says which.
        early: full rate for so many steps, then 0.
        late: 0 for so many steps, then the full rate.
        linear: from the full rate to 0 in so many steps. Give one of the three.
        only: as in :func:`set_rate`.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        >>> schedule = RateSchedule(model, linear=2)
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates.append(model[1].p)
        ...     schedule.step()
        >>> rates
        [0.5, 0.25, 0.0, 0.0]
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        early: int | None = None,
        late: int | None = None,
        linear: int | None = None,
        only: Only = None,
    ) -> None:
        given = dict(zip(KINDS, (early, late, linear), strict=True))
        chosen = {kind: steps for kind, steps in given.items() if steps is not None}
        if len(chosen) != 1:
            raise ValueError(f"RateSchedule takes one of early, late and linear, but was given {chosen or 'none'}")
        self.kind, steps = next(iter(chosen.items()))
        self.steps = checked_integer(steps, self.kind, "the number of steps")
        self.layers = _rated(model, only)
        self.rates = {name: float(layer.p) for name, layer in self.layers.items()}
        self.last_step = 0
        self._apply()

    def step(self) -> None:
        """The next rate."""
        self.last_step += 1
        self._apply()

    def get_last_rate(self) -> dict[str, float]:
        """The rates of the layers by name."""
        return {name: float(layer.p) for name, layer in self.layers.items()}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs: the schedule, its step and the full rates by name."""
        return {"kind": self.kind, "steps": self.steps, "last_step": self.last_step, "rates": dict(self.rates)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there; the layers get the rate of that step, since a model's own state_dict holds none."""
        if missing := {"kind", "steps", "last_step", "rates"} - set(state_dict):
            raise ValueError(f"the state lacks {sorted(missing)}; load what RateSchedule.state_dict() gave")
        kind, rates = state_dict["kind"], dict(state_dict["rates"])
        if set(rates) != set(self.layers):
            raise ValueError(
                f"the state is of a model with dropout layers {sorted(rates)}, but this one has {sorted(self.layers)}"
            )
        if kind not in KINDS:
            raise ValueError(f"the state is of kind {kind!r}, but a schedule is one of {', '.join(map(repr, KINDS))}")
        rates = {name: checked_rate(rate, closed=True) for name, rate in rates.items()}
        steps = checked_integer(state_dict["steps"], "steps", "the number of steps")
        done = checked_integer(state_dict["last_step"], "last_step", "the number of steps taken", least=0)
        self.kind, self.steps, self.last_step, self.rates = kind, steps, done, rates
        self._apply()

    def _apply(self) -> None:
        done = min(1.0, self.last_step / self.steps)
        share = {"early": float(done < 1), "late": float(done == 1), "linear": 1.0 - done}[self.kind]
        for name, layer in self.layers.items():
            layer.p = share * self.rates[name]


def _rated(model: nn.Module, only: Only) -> dict[str, Any]:
    """Dropout layers by name whose rate decides how much they drop."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model is {model!r:.200}, but it is an nn.Module")
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, DROPOUTS)
        and all(getattr(layer, other, None) is None for other in ("penalty", "k", "keep"))
        and (only is None or only(name, layer))
    }
    if not layers:
        raise ValueError(
            "the model has no dropout layer whose rate could be set; describe_dropout(model, inputs) lists what drops"
        )
    return layers
