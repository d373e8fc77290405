"""Bad input: every error names the value, the rule and the remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from evodrop import theory
from evodrop.noise import Noise
from evodrop.theory import outcomes, report
from evodrop.theory.regularizers import n_outcomes

W, X, EVEN = np.array([1.0, -1.0]), np.array([[1.0, 2.0], [3.0, 0.0]]), [0.5, 0.5]
NOISE = Noise(EVEN, 2)
HALF_BLIND = Noise([1.0, 0.0], 2)
TAKES_NOISE = {
    "squared_norm": lambda noise: theory.squared_norm([1.0, 1.0], noise),
    "noise_covariance": lambda noise: theory.noise_covariance(W, noise),
    "outcomes": outcomes,
    "regularizer": lambda noise: theory.regularizer(W, X, noise),
    "regularizer_taylor": lambda noise: theory.regularizer_taylor(W, X, noise),
    "regularizer_tight_bound": lambda noise: theory.regularizer_tight_bound(W, X, noise),
    "regularizer_bound": lambda noise: theory.regularizer_bound(W, [1.0, 1.0], noise),
}
TAKES_PROBS = {name: lambda probs, f=function: f(Noise(probs, 2)) for name, function in TAKES_NOISE.items()}
TAKES_KEEP = {name: lambda keep, f=function: f(Noise(keep)) for name, function in TAKES_NOISE.items()}
TAKES_K = {name: lambda k, f=function: f(Noise(EVEN, k)) for name, function in TAKES_NOISE.items()}
TAKES_MOMENTS = {
    "squared_norm": lambda moments: theory.squared_norm(moments, NOISE),
    "regularizer_bound": lambda moments: theory.regularizer_bound(W, moments, NOISE),
    "tight_probabilities": lambda moments: theory.tight_probabilities(W, moments),
    "noise_gap": theory.noise_gap,
    "noises_for": lambda moments: theory.noises_for(moments, 0.5),
}
OF_A_MODEL = {
    "regularizer": theory.regularizer,
    "regularizer_taylor": theory.regularizer_taylor,
    "regularizer_tight_bound": theory.regularizer_tight_bound,
}
TAKES_W = {
    **{name: lambda w, f=function: f(w, X, NOISE) for name, function in OF_A_MODEL.items()},
    "regularizer_bound": lambda w: theory.regularizer_bound(w, [1.0, 1.0], NOISE),
    "tight_probabilities": lambda w: theory.tight_probabilities(w, [1.0, 1.0]),
}
OF_A_MODEL_BY_X = {name: lambda X, f=function: f(W, X, NOISE) for name, function in OF_A_MODEL.items()}
TAKES_X = {
    **OF_A_MODEL_BY_X,
    "report": report,
    "report of blocks": lambda X: report(iter([np.ones((3, 2)), X])),
}
TAKES_RATE = {"report": lambda rate: report(X, rate), "noise_gap": lambda rate: theory.noise_gap([1.0, 1.0], rate)}
BAD_MASSES = [
    ([0.5, -0.5], r"{}\[1\] is -0\.5, but {} are finite and not negative"),
    ([0.5, np.nan], r"{}\[1\] is nan, but {} are finite and not negative"),
    ([np.inf, 0.5], r"{}\[0\] is inf, but {} are finite and not negative"),
    ([0.0, 0.0], "{} are all zero, so no unit could be drawn; at least one must be positive"),
    ([], r"{} has shape \(0,\), but it takes one value per unit: shape \(d,\), d >= 1"),
    ([EVEN], r"{} has shape \(1, 2\), but it takes one value per unit: shape \(d,\), d >= 1"),
    (0.5, r"{} has shape \(\), but it takes one value per unit: shape \(d,\), d >= 1"),
]

NO_NUMBERS = [
    (np.array([1.0j, 2.0]), r"{} is array\(.*\), but it takes real numbers: Cannot cast .*complex128"),
    (np.array(["1", "2"]), r"{} is array\(.*\), but it takes real numbers: Cannot cast .*U1"),
    (np.array([1, 2], "M8[Y]"), r"{} is array\(.*\), but it takes real numbers: Cannot cast .*M8\[Y\]"),
    ({"a": 1}, r"{} is \{'a': 1\}, but it takes real numbers: Cannot cast"),
    ([[1.0], [2.0, 3.0]], r"{} is \[\[1.0\], \[2.0, 3.0\]\], but it takes real numbers: .*inhomogeneous"),
]


def table(*groups):
    """Each function of a group with each of its bad values, named."""
    for functions, name, rows in groups:
        for (value, message), (where, function) in ((row, item) for row in rows for item in functions.items()):
            yield pytest.param(function, value, message.replace("{}", name), id=f"{where}({name}={value!s:.30})")


ROWS = list(
    table(
        (TAKES_PROBS, "probs", BAD_MASSES),
        (
            TAKES_PROBS,
            "probs",
            [([0.5, 0.6], r"probs sum to 1\.1, but probabilities sum to 1; divide them by their sum")],
        ),
        (TAKES_KEEP, "keep", BAD_MASSES),
        (TAKES_KEEP, "keep", [([0.5, 1.5], r"keep has a value of 1\.5, but keep probabilities lie in \[0, 1\]")]),
        (TAKES_MOMENTS, "moments", [*BAD_MASSES, *NO_NUMBERS]),
        (TAKES_W, "w", NO_NUMBERS),
        (TAKES_PROBS | TAKES_KEEP, "chances", NO_NUMBERS),
        (OF_A_MODEL_BY_X, "X", NO_NUMBERS),
        (
            TAKES_K,
            "k",
            [
                (
                    value,
                    rf"k is {value!r}, but the number of draws is an integer from 1 to {2**53}",
                )
                for value in (0, -1, 2.0, 2.5, "2", True)
            ],
        ),
        (
            TAKES_W,
            "w",
            [
                ([np.nan, 1.0], r"w\[0\] is nan, but weights are finite"),
                ([1.0, -np.inf], r"w\[1\] is -inf, but weights are finite"),
                ([1.0], r"w has shape \(1,\), but it takes one weight per unit of (X|moments): shape \(2,\)"),
                ([], r"w has shape \(0,\), but it takes one weight per unit of (X|moments): shape \(2,\)"),
                ([[1.0, 2.0]], r"w has shape \(1, 2\), but it takes one weight per unit of (X|moments): shape \(2,\)"),
            ],
        ),
        (
            TAKES_X,
            "X",
            [
                (np.empty((0, 2)), r"X has shape \(0, 2\), but it takes at least one example: \(n, d\), n, d >= 1"),
                (np.empty((2, 0)), r"X has shape \(2, 0\), but it takes at least one example: \(n, d\), n, d >= 1"),
                (np.ones(2), r"X has shape \(2,\), but .* \(n, d\), n, d >= 1; one example is X\[None, :\]"),
                (np.ones((1, 1, 2)), r"X has shape \(1, 1, 2\), but it takes at least one example: \(n, d\)"),
                (sparse.csr_array((0, 2)), r"X has shape \(0, 2\), but it takes at least one example: \(n, d\)"),
                (np.array([[1.0, np.nan]]), "X has a value that is nan or infinite, but its values are finite; remove"),
                (sparse.csr_array([[1.0, np.inf]]), "X has a value that is nan or infinite, but its values are finite"),
            ],
        ),
        (
            TAKES_RATE,
            "rate",
            [
                (value, rf"dropout rate is {value!r}, but it takes a number in \[0, 1\), the fraction of units to drop")
                for value in (1.0, -0.1, 2, float("nan"), "half", None)
            ],
        ),
    )
)


@pytest.mark.parametrize(("function", "value", "message"), ROWS)
def test_bad_values_are_named(function, value, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        function(value)


THREE = Noise([0.2, 0.3, 0.5], 2)
LOST = r"^unit 1 is not always zero, but the noise never keeps it, .*; give every such unit a positive probability"
NOT_A_NOISE = r"^noise is {}, but it takes a Noise\(chances, k\); evodrop.noise.make_noise makes one"
LENGTHS = r"^{} has {} units, but {} {}; both take one value per unit"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.squared_norm([1.0, 1.0], HALF_BLIND), LOST),
        (lambda: theory.squared_norm([1.0, 1.0], Noise([1.0, 0.0])), LOST),
        (lambda: theory.noise_covariance(W, HALF_BLIND), LOST),
        (lambda: theory.noise_covariance(sparse.coo_array(W), Noise([1.0, 0.0])), LOST),
        (lambda: theory.regularizer_bound(W, [1.0, 1.0], HALF_BLIND), LOST),
        *[(lambda f=f: f(W, X, HALF_BLIND), LOST) for f in OF_A_MODEL.values()],
        *[(lambda f=f: f(W, X, THREE), LENGTHS.format("X", 2, "the noise", 3)) for f in OF_A_MODEL.values()],
        (lambda: theory.squared_norm([1.0], NOISE), LENGTHS.format("moments", 1, "the noise", 2)),
        (lambda: theory.squared_norm([1.0], Noise(EVEN)), LENGTHS.format("moments", 1, "the noise", 2)),
        (lambda: theory.regularizer_bound(W, [1.0, 1.0], THREE), LENGTHS.format("moments", 2, "the noise", 3)),
        (lambda: theory.noise_covariance([1.0], NOISE), LENGTHS.format("x", 1, "the noise", 2)),
        (lambda: theory.tight_probabilities([1.0, 0.0], [0.0, 1.0]), "^w is 0 wherever moments are positive"),
        (lambda: report(iter([X, np.ones((2, 3))])), "^the block of rows from 2 on has 3 units, the first 2"),
        (lambda: report(iter([])), "^X has no examples, but a prediction takes at least one"),
        (lambda: report(np.zeros((3, 2))), "^X or its squares are 0 in all of its 3 examples"),
        (lambda: report(sparse.csr_array((3, 2))), "^X or its squares are 0 in all of its 3 examples"),
        (lambda: report(iter([np.zeros((3, 2))] * 2)), "^X or its squares are 0 in all of its 6 examples"),
    ],
)
def test_arguments_that_do_not_fit_each_other_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("function", [theory.risk_bound, theory.bound_step_size])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"G": 0}, "^G is 0, but the Lipschitz constant of the loss is a finite number above 0"),
        ({"B": -1.0}, r"^B is -1\.0, but the root of E\|\|x \* noise\|\|\^2 is a finite number above 0"),
        ({"r": np.inf}, "^r is inf, but the largest norm of the weights is a finite number above 0"),
        ({"r": np.nan}, "^r is nan, but the largest norm of the weights is a finite number above 0"),
        ({"n": 0}, "^n is 0, but the number of steps is an integer from 1 to 9007199254740992"),
        ({"n": 10.0}, r"^n is 10\.0, but the number of steps is an integer from 1 to 9007199254740992"),
    ],
)
def test_bad_constants_of_theorem_1_are_named(function, change, message):
    with pytest.raises(ValueError, match=message):
        function(**{"G": 1.0, "B": 1.0, "r": 1.0, "n": 10} | change)
    if "B" not in change:
        with pytest.raises(ValueError, match=message):
            report(iter([]), **change)  # before the data are read


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "^method is 'guess', but it takes one of 'auto', 'exact', 'sample'"),
        (
            {"method": "sample", "n_samples": 1},
            "^n_samples is 1, but the number of draws .* is an integer of at least 2",
        ),
        *[
            (
                {"method": "sample", "n_samples": n},
                f"^n_samples is {n!r}, but the number of draws .* is an integer of at",
            )
            for n in (-5, 2.5, True, None)
        ],
    ],
)
def test_bad_options_of_the_regularizer_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        theory.regularizer(W, X, NOISE, **options)


@pytest.mark.parametrize("noise", [Noise(np.full(100, 0.01), 50), Noise(np.full(64, 0.5))], ids=repr)
def test_what_cannot_be_enumerated_is_refused_at_once(noise):
    d = len(noise.chances)
    for enumerate_all in (
        lambda: outcomes(noise),
        lambda: theory.regularizer(np.ones(d), np.ones((1, d)), noise, method="exact"),
    ):
        with pytest.raises(ValueError, match=rf"\S+e\+\d+ outcomes of {d} units .*; sample the noise"):
            enumerate_all()


def test_auto_samples_where_a_table_of_outcomes_would_be_large():
    noise = Noise(np.full(3000, 1 / 3000), 1)  # 3,000 outcomes of 3,000 numbers
    X = np.ones((1, 3000))
    assert theory.regularizer(np.ones(3000), X, noise, n_samples=10, random_state=0).standard_error >= 0
    assert n_outcomes(noise) == 3000
    with pytest.raises(ValueError, match="n_samples is 1"):
        theory.regularizer(np.ones(3000), X, noise, n_samples=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.regularizer(W, X, "standard"), NOT_A_NOISE.format("'standard'")),
        (lambda: theory.regularizer_bound(W, [1.0, 1.0], EVEN), NOT_A_NOISE.format(r"\[0\.5, 0\.5\]")),
        (
            lambda: report("train.svm"),
            r"^X is 'train\.svm', but it takes the examples; evodrop\.linear\.iter_svmlight reads a",
        ),
        (lambda: report(Path("train.svm")), r"^X is PosixPath\('train\.svm'\), but .*iter_svmlight reads a file"),
        (lambda: theory.noise_covariance(X, NOISE), r"^x has shape \(2, 2\), but it takes one example: shape \(d,\)"),
        (
            lambda: theory.noise_covariance(sparse.csr_array(X), Noise([0.25] * 4, 2)),
            r"^x has shape \(2, 2\), but it takes one",
        ),
        (lambda: theory.noise_covariance([], NOISE), r"^x has shape \(0,\), but it takes one example"),
        (lambda: report(np.full((2, 2), 1e200)), "^X has values whose squares overflow; divide X by its largest value"),
        (lambda: theory.regularizer_tight_bound([1e200, 1.0], X, NOISE), "^w and X .* squares .* overflow; divide one"),
        (lambda: theory.regularizer([1e300, 1.0], 1e10 * X, NOISE), "^w and X .* scores overflow; divide one by its"),
    ],
)
def test_what_has_no_meaning_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
