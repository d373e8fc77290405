"""The blocks of docs/theory.md on the errata and on data: one function each, which gives its Markdown."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from pages import table
from scipy import sparse
from scipy.optimize import brentq, minimize
from scipy.special import softmax

from evodrop._checks import Floats
from evodrop.definitions import (
    expected_kept,
    keep_probabilities,
    multinomial_noise,
    n_draws,
    sampling_probabilities,
    second_moments,
)
from evodrop.noise import Noise, make_noise
from evodrop.theory import (
    noise_gap,
    noises_for,
    regularizer,
    regularizer_taylor,
    regularizer_tight_bound,
    report,
    squared_norm,
    tight_probabilities,
)
from evodrop.theory.regularizers import sample_noise

__all__ = ["filling", "kept", "lacking", "norms", "rates", "sizes", "taylor", "text", "tight"]

UNITS = 1000
RANKS = np.arange(1.0, UNITS + 1)
LAWS: dict[str, Floats] = {  # second moments by rank
    "all equal": np.ones(UNITS),
    "1 / i": 1.0 / RANKS,
    "1 / i²": 1.0 / RANKS**2,
    "exp(-i / 50)": np.exp(-RANKS / 50),
    "one giant, 10⁶ times the others": np.where(RANKS == 1, 1e6, 1.0),
}
TEXTS = {"20 Newsgroups": "20news", "Reuters-52": "reuters52"}


def taylor() -> str:
    """Erratum 1: R by enumeration, and both readings of its expansion as the noise vanishes."""
    X, w = np.array([[2.0, 1.0, 1.0], [1.0, -2.0, 0.5], [-1.0, 1.0, 2.0]]), np.array([1.5, -1.0, 0.5])
    rows = []
    for k in (4, 16, 64, 256):
        noise = Noise(sampling_probabilities(second_moments(X)), k)
        exact = regularizer(w, X, noise, method="exact").value
        printed = 4 * regularizer_taylor(w / 2, X, noise)  # s at w.x / 2, and the variance, quadratic in w, at w
        ratios = [regularizer_taylor(w, X, noise) / exact, printed / exact]
        rows.append([k, f"{exact:.5f}", *(f"{ratio:.3f}" for ratio in ratios)])
    return table(["k", "R, exact", "Eq. 4 with s(w·x) / R", "Eq. 4 with s(w·x / 2) / R"], rows, numbers=True)


def kept() -> str:
    """Erratum 2: the distinct units that survive k draws."""
    d, samples, rng = 100, 100_000, np.random.default_rng(0)
    head = ["rate", "k / d", "kept / d, formula", "kept / d, sampled", "limit, d → ∞", "k / d to keep 1 - rate"]
    rows = []
    for rate in (0.1, 0.25, 0.5, 0.75, 0.9):
        probs, k = np.full(d, 1 / d), n_draws(d, rate)
        sampled = (multinomial_noise(probs, k, samples, rng) > 0).mean()
        shares = [expected_kept(probs, k) / d, sampled, -math.expm1(rate - 1)]
        rows.append(
            [
                rate,
                f"{k / d:.2f}",
                *(f"{share:.3f}" for share in shares),
                f"{make_noise(probs, None, rate, match='distinct').k / d:.2f}",
            ]
        )
    return table(head, rows, numbers=True)


def tight() -> str:
    """Erratum 3: the tight bound for the probabilities as printed, as corrected, and as a solver finds them."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(50, 6)) / np.arange(1, 7), np.array([0.1, -0.2, 0.5, 1.0, -2.0, 3.0])
    moments, k = second_moments(X), 3

    def bound(probs: Floats) -> float:
        return regularizer_tight_bound(w, X, Noise(probs, k))

    scale = np.sqrt(moments)
    candidates = {
        "uniform": np.full(6, 1 / 6),
        "as printed": np.abs(w) * scale / (np.abs(w)[:, None] * scale).sum(axis=1),  # w_i in the sum over j
        "data-dependent": sampling_probabilities(moments),
        "as corrected": tight_probabilities(w, moments),
        "found by a solver": softmax(minimize(lambda logits: bound(softmax(logits)), np.zeros(6), tol=1e-9).x),
    }
    head = ["probabilities", *(f"p{i}" for i in range(1, 7)), "tight bound"]
    rows = [[name, *(f"{p:.3f}" for p in probs), f"{bound(probs):.4f}"] for name, probs in candidates.items()]
    return table(head, rows, numbers=True)


def sizes() -> str:
    """Erratum 4: the sizes of the MNIST network, 'valid' convolutions and poolings that round up or down."""
    layers = [("conv1, 4 x 4", 4, 1, 21), ("pool1, 2 x 2, stride 2", 2, 2, 11), ("conv2, 5 x 5", 5, 1, 7)]
    layers += [("pool2, 3 x 3, stride 3", 3, 3, 3)]
    readings = [(28, math.ceil), (24, math.ceil), (24, math.floor)]
    now, rows = [size for size, _ in readings], [["input", 28, 28, 24, 24]]
    for layer, width, stride, printed in layers:
        now = [rounded((size - width) / stride) + 1 for size, (_, rounded) in zip(now, readings, strict=True)]
        rows.append([layer, printed, *now])
    return table(["layer", "printed", "28, rounded up", "24, rounded up", "24, rounded down"], rows, numbers=True)


def norms() -> str:
    """Erratum 5: B^2 / E||x||^2 at rate 1/2 by the evenness of the units, by formula and sampled."""
    d, rng = 400, np.random.default_rng(0)
    names = ("standard", "uniform", "data-dependent")
    rows = []
    for evenness in (1.0, 0.75, 0.5, 0.25):
        power = (1 - evenness + math.sqrt(1 - evenness)) / evenness  # x^power on (0, 1) has this evenness
        x = ((np.arange(d) + 0.5) / d) ** power
        noises, cells = noises_for(x**2, 0.5), []
        for name in names:
            sampled = ((x * sample_noise(noises[name], 5000, rng)) ** 2).sum(axis=1) / (x @ x)
            error = sampled.std(ddof=1) / math.sqrt(len(sampled))
            cells.append(f"{squared_norm(x**2, noises[name]) / (x @ x):.3f} ({sampled.mean():.3f} ± {error:.3f})")
        rows.append([f"{noise_gap(x**2).evenness:.2f}", *cells, f"{1 + 2 * evenness:g}"])
    return table(["evenness", *names, "1 + 2 evenness"], rows, numbers=True)


def filling() -> str:
    """Erratum 6: the best multinomial noise against water-filling, on laws of moments and on random problems."""
    k = n_draws(UNITS, 0.5)
    rows = []
    for law, moments in LAWS.items():
        total, noises = moments.sum(), noises_for(moments, 0.5)
        best, filled = (squared_norm(moments, noises[name]) / total for name in ("data-dependent", "water-filling"))
        sure = int((keep_probabilities(moments, k) >= 1).sum())
        rows.append([law, f"{best:.3f}", f"{filled:.3f}", f"{best - filled:.3f}", sure])
    head = [f"E x_i², d = {UNITS}", "data-dependent", "water-filling", "difference", "units always kept"]
    tries = 10_000
    worse = sum(multinomial_wins(np.random.default_rng(seed)) for seed in range(tries))
    verdict = (
        f"Random moments, d and k: the best multinomial noise has the smaller B² in {worse} of {tries:,} problems."
    )
    return f"{table(head, rows, numbers=True)}\n\n{verdict}"


def multinomial_wins(rng: np.random.Generator) -> bool:
    """Whether the best multinomial noise beats water-filling, by more than rounding, on a random problem."""
    d = int(rng.integers(1, 30))
    moments, k = rng.gamma(0.3, size=d) + 1e-9, int(rng.integers(1, 2 * d + 1))
    multinomial = squared_norm(moments, Noise(sampling_probabilities(moments), k))
    return multinomial < squared_norm(moments, Noise(keep_probabilities(moments, k))) * (1 - 1e-12)


def rates() -> str:
    """When it pays: B^2 of standard dropout over that of noise that follows the data."""
    head = [
        "E x_i²",
        "evenness",
        *(f"data-dependent, rate {rate}" for rate in (0.2, 0.5, 0.8)),
        "water-filling, rate 0.5",
    ]
    rows = []
    for law, moments in LAWS.items():
        gains = [noise_gap(moments, rate).data_dependent_over_standard for rate in (0.2, 0.5, 0.8)]
        gap = noise_gap(moments, 0.5)
        gains.append(gap.water_filling_over_standard)
        rows.append([law, f"{gap.evenness:.3f}", *(f"{gain:.2f}" for gain in gains)])
    return table(head, rows, numbers=True)


def files(folder: Path) -> dict[str, Path]:
    return {name: folder / short / "train.svm.bz2" for name, short in TEXTS.items()}


def lacking(folder: Path) -> list[Path]:
    """The files of real text that the folder should have and has not."""
    return [path for path in files(folder).values() if not path.is_file()]


def text(folder: Path) -> str:
    """Real text, rows of norm 1, at rate 1/2."""
    return "\n\n".join(of_text(name, path) for name, path in files(folder).items())


def of_text(name: str, path: Path) -> str:
    from evodrop.linear import iter_svmlight  # brings scikit-learn and numba, which the other blocks do not need

    X = sparse.vstack([X for X, _ in iter_svmlight(path)], format="csr")
    predicted = report(X)
    largest = predicted.noises["data-dependent"].spread.max()
    halved = report(X, brentq(lambda rate: report(X, rate)["data-dependent"].kept_of_row - 0.5, 0.5, 0.999, xtol=1e-4))
    title = (
        f"**{name}**: {predicted.n:,} rows x {predicted.d:,} features, k = {predicted.k:,}, "
        f"evenness {predicted.gap.evenness:.3f}. One draw of the weakest feature multiplies it by {largest:.0f}. "
        f"Data-dependent noise keeps half of a row at a rate of {halved.rate:.2f}, where its B² is "
        f"{halved['data-dependent'].squared_norm:.1f}."
    )
    rows = [
        [p.noise, f"{p.squared_norm:.2f}", f"{p.bound:.4f}", f"{p.kept:,.0f}", f"{p.kept_of_row:.0%}", f"{p.gain:.2f}"]
        for p in predicted.predictions
    ]
    head = ["noise", "B²", "risk bound, r = 1", "kept features", "kept of a row", "gain over standard"]
    return f"{title}\n\n{table(head, rows, numbers=True)}"
