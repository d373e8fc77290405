"""DropoutSGDClassifier: SGD on examples corrupted by dropout, for scikit-learn."""

from __future__ import annotations

import math
from numbers import Integral, Real
from operator import is_
from typing import Any, ClassVar

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from evodrop._checks import Array, Floats
from evodrop._kernels.epoch import LOSSES
from evodrop.linear._base import (
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_INTEGER,
    LinearClassifier,
    checked_examples,
    class_weights,
    count_problems,
    followed,
    multiplied,
    number_labels,
    side_weights,
    split_rows,
)
from evodrop.linear._fit import (
    DROPOUTS,
    FALLING,
    Descent,
    Model,
    Progress,
    descend,
    make_examples,
    overflow,
    step_options,
    sum_squares,
)
from evodrop.noise import MATCHES, MOST_DRAWS, Noise

__all__ = ["DropoutSGDClassifier"]


def checked_start(values: Any, name: str, shape: tuple[int, ...]) -> Floats:
    """Coefficients or intercepts to begin with, or a ValueError."""
    found = np.asarray(values, np.float64)
    if found.shape not in (shape, shape[1:]) or found.size != math.prod(shape):
        raise ValueError(f"{name} has the shape {found.shape}, but for these data it takes {shape}")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} holds values that are not finite; a fit begins with finite numbers")
    return found.reshape(shape)


class DropoutSGDClassifier(LinearClassifier):
    r"""A linear classifier trained by SGD on examples that are corrupted by dropout.

    Step t draws noise for one example and moves against the gradient at what is left of it (Eq. 6 of the paper),

    .. math:: w_{t+1} = w_t - \eta_t \nabla \ell(w_t^\top (x_t \circ \epsilon_t), y_t),

    with noise of mean 1. A step costs the non-zeros of its row, whatever the number of features and of draws.
    Several classes are learned one against the rest, with the same noise.

    Parameters named as in :class:`sklearn.linear_model.SGDClassifier` mean what they mean there, but for the step
    size, the tail average and the rule when to stop. The defaults were chosen on blocks of the training data of a part
    of RCV1 and of Reuters-52, rows of norm 1. Scale other data, and try a smaller ``eta0``;
    :func:`evodrop.theory.bound_step_size` gives the step of Theorem 1.

    Args:
        dropout: the noise. "data-dependent": multinomial with p_i ~ sqrt(E x_i^2) of the training data, the choice of
            the paper (Definition 2). "uniform": multinomial with equal p_i. "standard": independent, each feature is
            dropped with probability ``rate``. "water-filling": independent, with keep probabilities
            min(1, t sqrt(E x_i^2)) that sum to k. "weight-aware": multinomial, half data-dependent, half
            ``p_i ~ |w_i| sqrt(E x_i^2)``, the supplement's tighter bound, with the weights as the epoch begins. "none".
        rate: the fraction to drop, in [0, 1): k = d (1 - rate) draws. 0 is no noise.
        k: number of draws, instead of the rate.
        match: "draws", or the k that fits a fair comparison with standard dropout at the same rate: "distinct" or
            "noise", see :mod:`evodrop.noise`.
        loss: "hinge", "log_loss", "squared_hinge" or "modified_huber".
        alpha: L2 penalty alpha / 2 ||w||^2.
        learning_rate: "linear": eta0 at first, falling on a straight line to 0 at the end of the last epoch. "adagrad":
            the same, over the root of the sum of squares of each weight's gradients so far; the penalty shrinks all
            weights alike. "invscaling": eta0 / t^power_t. "constant": eta0. "adaptive": eta0, a fifth of
            that each time the rule below would stop the fit, and so on down to 1e-6. ``partial_fit``, which has no last
            epoch, does not let the steps fall, but for "invscaling".
        eta0: the step size, or the first one.
        power_t: exponent of "invscaling".
        average: True: the model is the average of all iterates, as in Theorem 1. "tail": of those of the last epochs,
            as the average begins anew after 1, 2, 4, 8 and so on. False: it is the last iterate.
        max_iter, tol, n_iter_no_change: at most ``max_iter`` epochs; stop when the mean loss (with ``early_stopping``
            the validation score) of the last ``n_iter_no_change`` epochs is not better by ``tol`` than that of as many
            epochs before them. "linear" and "adagrad" take all epochs, unless ``early_stopping`` is set.
        early_stopping, validation_fraction: set that fraction of the examples aside to decide when to stop.
        fit_intercept: the intercept gets no noise, and the same step size as the weights.
        shuffle: a new order of the examples in each epoch.
        class_weight: None, "balanced" or a dict of classes and weights.
        warm_start: begin with the coefficients of the last fit.
        record_train_error: find the training error of each epoch for ``history_``, which costs about a sixth of it.
        random_state: an int makes fits repeatable.
        n_jobs: threads for several classes; the result does not depend on it.
        verbose: 1 draws a progress bar.

    Attributes:
        coef_, intercept_, classes_, n_features_in_: as usual; ``coef_`` is float32 if X is.
        n_iter_: epochs of the last fit.
        t_: number of the next step, 1 at first.
        probs_: (d,) sampling probabilities; keep probabilities for "standard" and "water-filling"; None without noise.
        k_: number of draws; expected number of kept features for "standard" and "water-filling"; None without noise.
        history_: lists with one number per epoch: "loss", the mean loss at the corrupted examples; "train_error", the
            share of clean training examples that the model gets wrong (nan without ``record_train_error``);
            "validation_score" (nan without early stopping); "seconds", to find the error and the score included, and
            in the first epoch to make the tables of the noise.

    Examples:
        >>> import scipy.sparse
        >>> X = scipy.sparse.csr_array([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0], [3.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
        >>> model = DropoutSGDClassifier(random_state=0).fit(X, ["sport", "art", "sport", "art"])
        >>> model.predict(X)
        array(['sport', 'art', 'sport', 'art'], dtype='<U5')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LinearClassifier._parameter_constraints,
        "dropout": [StrOptions(set(DROPOUTS))],
        "k": [Interval(Integral, 1, MOST_DRAWS, closed="both"), None],
        "match": [StrOptions(set(MATCHES))],
        "loss": [StrOptions(set(LOSSES))],
        "learning_rate": [StrOptions({"constant", "invscaling", "adaptive", *FALLING})],
        "eta0": [POSITIVE],
        "power_t": [NOT_NEGATIVE],
        "average": ["boolean", StrOptions({"tail"})],
        "tol": [NOT_NEGATIVE, None],
        "n_iter_no_change": [POSITIVE_INTEGER],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "shuffle": ["boolean"],
        "record_train_error": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        *,
        dropout: str = "data-dependent",
        rate: float = 0.5,
        k: int | None = None,
        match: str = "draws",
        loss: str = "hinge",
        alpha: float = 0.0,
        learning_rate: str = "linear",
        eta0: float = 0.3,
        power_t: float = 0.25,
        average: bool | str = False,
        max_iter: int = 15,
        tol: float | None = 1e-3,
        n_iter_no_change: int = 5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        fit_intercept: bool = True,
        shuffle: bool = True,
        class_weight: Any = None,
        warm_start: bool = False,
        record_train_error: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.dropout, self.rate, self.k, self.match = dropout, rate, k, match
        self.loss, self.alpha, self.class_weight, self.fit_intercept = loss, alpha, class_weight, fit_intercept
        self.learning_rate, self.eta0, self.power_t, self.average = learning_rate, eta0, power_t, average
        self.max_iter, self.tol, self.n_iter_no_change, self.shuffle = max_iter, tol, n_iter_no_change, shuffle
        self.early_stopping, self.validation_fraction = early_stopping, validation_fraction
        self.record_train_error = record_train_error
        self.warm_start, self.random_state, self.n_jobs, self.verbose = warm_start, random_state, n_jobs, verbose

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, coef_init: Any = None, intercept_init: Any = None
    ) -> DropoutSGDClassifier:
        """Learn from scratch, or with ``warm_start`` from the coefficients of the last fit.

        The model keeps what it needs to predict: the iterates and the second moments are forgotten. ``partial_fit``
        goes on from the coefficients.

        Args:
            X: (n, d) array or sparse matrix.
            y: (n,) classes.
            sample_weight: (n,) weights, not negative; each multiplies the step of its example.
            coef_init: coefficients to begin with, in the shape of ``coef_``; for two classes (d,) will do.
            intercept_init: intercepts to begin with, in the shape of ``intercept_``.
        """
        goes_on = self.warm_start and hasattr(self, "coef_")
        X, y, weight = checked_examples(self, X, y, sample_weight, reset=not goes_on)
        classes = np.unique(y)
        if goes_on:
            self._check_same_classes(classes)
        shape = count_problems(classes), X.shape[1]
        zeros = np.broadcast_to(0.0, shape)
        coef, intercept = (self.coef_, self.intercept_) if goes_on else (zeros, zeros[:, 0])
        if coef_init is not None:
            coef = checked_start(coef_init, "coef_init", shape)
        if intercept_init is not None:
            intercept = checked_start(intercept_init, "intercept_init", shape[:1])
        self._begin(classes, X.shape[1])
        self._progress.model.start_at(coef, intercept)
        try:
            self._learn(X, y, weight, self.max_iter)
        finally:
            del self._progress
        return self

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> DropoutSGDClassifier:
        """One epoch over a part of the data. The second moments run over all parts so far, and the part itself is
        counted before its first step: a feature never seen before can be drawn at once.

        Args:
            X, y, sample_weight: as for :meth:`fit`.
            classes: all classes of all parts; needed in the first call.
        """
        known, fitted = self._known_classes(classes), self._is_fitted()
        X, y, weight = checked_examples(self, X, y, sample_weight, reset=not fitted)
        number_labels(y, known)  # before anything is changed
        if not hasattr(self, "_progress"):
            self._begin(known, X.shape[1])
            if fitted:
                self._progress.model.start_at(self.coef_, self.intercept_, int(self.t_))
        self._learn(X, y, weight, 1, partial=True)
        return self

    # The rest is for the fit on a cluster too.

    def _check_same_classes(self, classes: Array) -> None:
        if not np.array_equal(classes, self.classes_):
            raise ValueError(f"warm_start has classes {self.classes_}, but y has {classes}; set warm_start=False")

    def _known_classes(self, classes: Any) -> Array:
        """The classes of all parts, for partial_fit, after all checks that need no data."""
        first, begun = not self._is_fitted(), hasattr(self, "_progress")
        # scikit-learn looks at the parameters in the first call only, and it takes as long as the step of a row.
        now = [getattr(self, name) for name in self._parameter_constraints]
        checked = self._progress.checked if begun else ()
        if len(checked) != len(now) or not all(map(is_, now, checked)):
            self._validate_params()
            if begun:
                self._progress.checked = now
        if classes is None and first:
            raise ValueError("classes is None, but the first call of partial_fit needs the classes of all parts")
        known = self.classes_ if classes is None else np.unique(classes)
        if self.early_stopping or self.class_weight == "balanced":
            option = "early_stopping=True" if self.early_stopping else "class_weight='balanced'"
            raise ValueError(f"{option} needs all data at once, which partial_fit does not have; use fit")
        count_problems(known)  # fewer than two are refused
        if not first and not np.array_equal(known, self.classes_):
            raise ValueError(f"classes are {classes!r}, but the first call of partial_fit was given {self.classes_!r}")
        if begun and bool(self.average) != self._progress.averages:
            raise ValueError(f"average is {self.average!r}, but it cannot be switched on or off after the first call")
        if begun and (self.learning_rate == "adagrad") != self._progress.adagrad:
            raise ValueError(f"learning_rate is {self.learning_rate!r}, but adagrad is chosen or not in the first call")
        return known

    def _is_fitted(self) -> bool:
        """Whether partial_fit has something to go on from: what it has begun, or the coefficients of a fit."""
        return hasattr(self, "_progress") or hasattr(self, "coef_")

    def _begin(self, classes: Array, d: int) -> None:
        """Forget what was learned."""
        averages, adagrad = bool(self.average), self.learning_rate == "adagrad"
        model = Model(d, count_problems(classes), averages, effective_n_jobs(self.n_jobs), adagrad)
        self.classes_, self._progress = classes, Progress(model, self._new_seed(), averages, adagrad)

    def _learn(self, X: Any, y: Array, weight: Floats, epochs: int, partial: bool = False) -> None:
        progress, model, labels = self._progress, self._progress.model, number_labels(y, self.classes_)
        counts = np.bincount(labels[weight > 0], minlength=len(self.classes_))
        by_class = class_weights(self.class_weight, self.classes_, counts)
        in_moments, in_steps = multiplied(weight, labels, by_class)
        if not in_moments.any():
            raise ValueError(f"class_weight={self.class_weight} leaves no example any weight; give one a positive one")
        fraction = self.validation_fraction if self.early_stopping else None
        training, validation = split_rows(labels, in_steps, fraction, progress.seed)
        step = step_options(self, math.inf if partial else epochs * len(training))
        bar = epochs if self.verbose and epochs > 1 else 0
        details = {"X": X, "y": y, "metadata": {"sample_weight": weight}}
        with followed(self, "epoch", epochs, bar, self._fitted, **details) as watch:
            model.own_memory()
            examples, progress.dtype = make_examples(X, labels, in_steps), X.dtype
            squares = sum_squares(examples._replace(weights=in_moments), training, X.shape[1])
            moments, sides = progress.moments(squares, float(in_moments[training].sum())), side_weights(by_class)
            descent = Descent(model, examples, training, moments, self, step, sides, progress.seed)

            def take_round(_: int, restart: bool, eta0: float) -> tuple[float, float, float]:
                descent.step = step._replace(eta0=eta0)
                if restart:
                    model.restart_average()
                loss, error = descent.epoch(), math.nan
                if self.record_train_error:
                    error = 1.0 - model.accuracy(X, labels, training)
                return loss, error, model.accuracy(X, labels, validation)

            self._keep(descend(take_round, progress.history, self, epochs, watch, partial=partial), descent.law)

    def _keep(self, n_iter: int, noise: Noise | None) -> None:
        """The attributes of a fit that is done."""
        self.n_iter_, self.history_ = n_iter, self._progress.history
        self.probs_: Floats | None = None
        self.k_: float | None = None
        if noise is not None:
            self.probs_, self.k_ = noise
            if self.k_ is None:
                self.k_ = float(noise.chances.sum())
        for name, value in self._fitted().items():
            setattr(self, name, value)

    def _fitted(self) -> dict[str, Any]:
        """What a fit that ended now would have."""
        model = self._progress.model
        coef, intercept = model.coefficients()
        with np.errstate(over="ignore"):
            coef = coef.astype(self._progress.dtype, copy=False)
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise overflow(model.step)
        return {"coef_": coef, "intercept_": intercept, "t_": float(model.step)}

    def _new_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))
