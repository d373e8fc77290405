"""Folders of runs that nobody trained: curves with a known shape, made by a formula."""

from __future__ import annotations

import json
import re

import numpy as np

from evodrop.lab.curves import read_curve
from evodrop.lab.run import Run

SPACING = 100  # iterations from one record to the next


def run_fields(**changes):
    fields = {"dataset": "mnist", "network": "mnist", "method": "standard", "seed": 0, "lr": 0.005, "epochs": 20}
    return Run(**fields).to_dict() | changes


def record(number, **changes):
    """The record of an iteration, without layers."""
    nothing = dict.fromkeys(("noisy_error", "noisy_loss", "clean_error", "clean_loss", "test_error", "test_loss"))
    return {
        "iteration": number * SPACING,
        "epoch": 1.0,
        "status": "running",
        "lr": 0.1,
        "layers": [],
        **nothing,
    } | changes


def write_run(out, records, cpu_seconds=0.01, data="x", **changes):
    """A run's folder in ``out``, written again if it is there."""
    fields = run_fields(**changes)
    name = "-".join(
        str(fields[key]) for key in ("dataset", "network", "method", "match", "rate", "lr", "epochs", "seed")
    )
    name = re.sub("[^A-Za-z0-9.]+", "-", name)
    header = {
        "run": fields,
        "data": data,
        "environment": {"python": "3.11", "cpu": "made up"},
        "git": {"commit": "abc"},
    }
    (out / name).mkdir(parents=True, exist_ok=True)
    (out / name / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (header, *records)))
    timing = {"steps": SPACING, "median_seconds": 1.0, "median_cpu_seconds": cpu_seconds}
    timings = [timing | {"iteration": record["iteration"]} for record in records] or [timing]
    (out / name / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in timings))
    return out / name


def write_errors(out, errors, status="finished", **changes):
    """A run whose training error on clean data and test error are the given numbers; None where it diverged."""
    records = [record(number, clean_error=error, test_error=error) for number, error in enumerate(errors, 1)]
    records[-1]["status"] = status
    return write_run(out, records, **changes)


def curve(tmp_path, errors, status="finished", **changes):
    return read_curve(write_errors(tmp_path, errors, status, **changes))


def layer(name, step, pace=1.0, units=64):
    """Strengths that grow uneven as the training goes on, some of them dead."""
    strengths = np.exp(-np.linspace(0, 1 + 4 * pace * step, units))
    strengths[-int(1 + 10 * step) :] = 0
    return {
        "name": name,
        "units": units,
        "dead": int((strengths == 0).sum()),
        "effective": float(strengths.sum() ** 2 / (strengths**2).sum()),
        "kept": units * 0.4 * pace,
        "noise": 1.5 - pace * step,
        "probs": np.quantile(strengths / strengths.sum(), np.linspace(0, 1, 64)).tolist(),
    }


def write_realistic(out, method, seed, speed, floor, n=60, layers=("dropout",), **changes):
    """A run whose errors fall towards a floor, with a little noise and all that a report shows."""
    rng = np.random.default_rng([seed, len(method)])
    steps = np.arange(1, n + 1) / n
    floor = floor * rng.uniform(0.8, 1.2)
    errors = np.clip(floor + 0.8 * np.exp(-speed * steps) + rng.normal(0, 0.004, (3, n)), 0, 1)
    records = [
        record(
            number,
            noisy_error=min(1.0, 1.3 * errors[0, number - 1]),
            clean_error=errors[1, number - 1],
            test_error=min(1.0, errors[2, number - 1] + 0.01),
            layers=[layer(name, steps[number - 1], speed / 16) for name in layers],
            status="finished" if number == n else "running",
        )
        for number in range(1, n + 1)
    ]
    return write_run(out, records, seed=seed, method=method, **changes)
