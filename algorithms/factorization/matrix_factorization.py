"""Matrix factorization of ratings and of counts, for recommendations."""

import copy
import functools
import os
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from ..._typing import Callback, DTypeLike, Engine, FileName, Matrix, RandomState, Vector
from ...errors import DataError, shortened
from ...scheduler.engine import run
from ...scheduler.wire import FORMATS
from .._base import ENGINES, keep_parameters
from .choose import check_combination, chosen_solver, penalties, penalty_factor, settings_of
from .early_stopping import compare_fit_with_biases, hold_out, watched
from .features import mapped
from .model import DRAWS, FactorModel
from .reading import read_ratings
from .solvers.als import AlternatingLeastSquares
from .solvers.ccd import CyclicCoordinateDescent
from .solvers.gibbs import GibbsPolish
from .solvers.implicit import ImplicitFeedback
from .solvers.pairwise import PairwiseRanking
from .solvers.sgd import RotationSGD
from .solvers.shrinkage import with_best_biases
from .stored import fingerprint_of
from .update import updated, widened

_CHECKPOINT_EVERY = 5  # iterations
SOLVERS: dict[str, Any] = {
    "als": AlternatingLeastSquares,
    "ccd": CyclicCoordinateDescent,
    "gibbs": GibbsPolish,
    "sgd": RotationSGD,
}


class MatrixFactorization(FactorModel):
    r"""Low-rank model of a table of users and items that is known in part.

    For ratings r of weight w, of mean 1, it minimises

    .. math:: \sum_{(u, i)} w_{ui} (r_{ui} - \mu - b_u - c_i - p_u \cdot q_i)^2
              + \lambda \sum_u (n_u + n_0)^\nu |p_u|^2 + \lambda \sum_i (n_i + n_0)^\nu |q_i|^2
              + \beta_1 \sum_u b_u^2 + \beta_2 \sum_i c_i^2

    over the factors p, q and biases b, c, with mu the mean rating, lambda = `reg`, n the number of ratings of
    a user or item, n_0 = `reg_offset`, nu = `reg_exponent` and beta = `bias_reg`. Without `bias`, mu, b and c
    are 0.

    For implicit feedback (counts of plays, visits, purchases) it minimises, over *all* cells,

    .. math:: \sum_{u, i} c_{ui} (t_{ui} - p_u \cdot q_i)^2
              + \lambda \sum_u (n_u + n_0)^\nu |p_u|^2 + \lambda \sum_i (n_i + n_0)^\nu |q_i|^2

    with confidence c = `alpha` ``* |value|`` and target t = 1 in the cells that are stored with a value above
    zero; a negative value is a dislike, of target 0; all cells that are not stored have confidence 1 and
    target 0. A stored zero has confidence 0: that cell is left out.

    With features x_u of users the prior of their factors and biases has a mean that is linear in them,

    .. math:: \lambda \sum_u (n_u + n_0)^\nu |p_u - A^T x_u|^2 + \lambda \rho |A|^2
              + \beta_1 \sum_u (b_u - a^T x_u)^2 + \beta_1 \rho |a|^2

    in place of the sums above (without the second line for implicit feedback), with rho = `feature_reg`, x_u
    with a last entry 1, and the least over A and a too; likewise items. The sum over cells is then over users
    and items with ratings; one without has the factors A' x. So does "als", which "auto" is with features;
    others fit A to their factors at the end.

    The result is *bitwise* the same for any `n_jobs`, and on Dask for any number of workers, also if some are
    lost in the midst.

    Memory while fitting a CSR matrix of int32 indices, besides it and the factors, in bytes a rating: 12 with
    "sgd", 8 with "als" (16 on Dask), 4 more where `R` is not of `dtype`; "ccd" takes 24. `seen_` has 5.

    `reg` and `alpha` are in units of ratings: other units change the model.

    Parameters
    ----------
    n_components : int, default=32
        Factors.
    reg : float or "auto", default="auto"
        lambda, above 0. "auto" is chosen by trials, without a fifth of what they see (`reg_`): for ratings by
        three to six fits, beginning at 0.045 deviations of the ratings, which fewer than 500 and more than
        200,000 ratings take as it is; for implicit feedback by three to eight short fits on at most 300,000
        counts. Of other losses: 0.03, and 1 for "warp".
    feature_reg : float, default=10.0
        rho, above 0: the weights of features are shrunk as by so many ratings (those of biases, and all
        with ``reg_exponent=0``, as by so many rows).
    bias_reg : float or "auto", default="auto"
        beta, of ratings: a bias is shrunk as by so many ratings of the mean, whether its row has one rating
        or a hundred. "auto" estimates the best for users and for items from the ratings, by the method of
        moments (`bias_reg_`). Not for implicit feedback, where biases of other losses than squares have the
        penalty of the factors.
    reg_exponent : float or "auto", default="auto"
        nu, from 0 (all rows have the same penalty) on. "auto" is 1, and 0.5 for implicit feedback with
        squares.
    reg_offset : float or "auto", default="auto"
        n_0: rows of few ratings are shrunk as if they had so many more. Of ratings "auto" is larger where
        users and items have few and where these vary more, and up to ten times that where the ratings show
        hardly anything beyond biases. Of implicit feedback it counts the cells that are not stored, each as
        1 / `alpha` of a choice, and is 0 for other losses (`reg_offset_`).
    implicit : bool, default=False
        Whether values are counts instead of ratings. There are no biases then.
    alpha : float, default=3.0
        Confidence of a count of 1 (`implicit` alone); 1 says no more than a cell without any.
    loss : {"squared", "bpr", "warp", "logistic"}, default="squared"
        Of implicit feedback: the squares above; or a loss of choices i (values above zero) and other items j
        that are drawn at random, by "sgd", with :math:`x_{ui} = c_i + p_u \cdot q_i`. "bpr", Bayesian
        personalised ranking: :math:`-\log \sigma(x_{ui} - x_{uj})`. "warp", weighted approximate-rank
        pairwise: :math:`L (1 - x_{ui} + x_{uj})_+`, with j the first of at most 32 drawn for which it is
        above 0, and L the sum of 1 / k up to the rank of i, estimated by the number of draws: for the top of
        the list. "logistic": :math:`-\log \sigma(x_{ui}) - \log \sigma(-x_{uj})`, with
        :math:`b_u` in x too, so that scores are log-odds against an item drawn at random.
    solver : {"auto", "als", "ccd", "gibbs", "sgd"}, default="auto"
        Alternating least squares and CCD++ never raise the objective. Stochastic gradient descent in rotation
        predicts better where there are many ratings: it ends before the minimum, which overfits, and then
        puts the biases at theirs. "gibbs" predicts best where rows have many ratings, and takes several times
        as long: after five epochs of gradient descent it draws factors and biases from their posterior, under
        priors that it learns (instead of `reg`), and keeps the mean of the draws. Implicit feedback takes
        "als", `non_negative` "als" or "ccd". "auto" is "sgd" from 5,000 ratings on where it can, else "als".
    non_negative : bool, default=False
        Factors of 0 or above. Biases may still be negative; parts that only add up come with ``bias=False``.
    bias : bool, default=True
        Whether there are a mean and biases.
    max_iter : int or None, default=None
        Iterations: passes over both sides, or epochs. None is 15, and 24 sweeps of "gibbs". For "sgd" the
        length of the schedule of rates: the fit takes all of it.
    tol : float, default=1e-4
        "als" and "ccd" end when the objective changes by at most this part.
    learning_rate : float, default=0.1
        First rate of "sgd", which falls linearly to 0.
    early_stopping : bool, default=False
        Hold ratings (or choices) out, end when their error has not fallen (or NDCG@20 not risen) for
        `n_iter_no_change` iterations, and keep the best model.
    validation_fraction : float, default=0.1
        Share of the ratings that are held out.
    n_iter_no_change : int, default=3
    n_draws : int, default=0
        Draws of "gibbs" that are kept for ``predict(X, return_std=True)``, evenly among its sweeps after the
        first two.
    n_blocks : int, default=8
        Groups of users of "sgd", at most 128, and of items (twice as many from 3 million ratings on): at most
        so many threads or workers are of use. The result depends on it.
    wire : {"float32", "float16", "bfloat16", "log8"} or None, default=None
        Number format to which "sgd" rounds the factors of a block of items when it is handed on, here and on
        Dask, where fewer bytes travel. See docs/matrix-factorization.md for errors.
    dtype : {"float32", "float64"}, default="float32"
        Of ratings and factors.
    engine : str or distributed.Client, default="local"
        "local"; "dask", the current Dask client; a client; or the address of a Dask scheduler. Users stay on
        their workers. Blocks of items travel for "sgd"; all workers get the factors after each half of an
        iteration of "als" and "gibbs", and each refitted side of a factor for "ccd".
    checkpoint : path-like or None, default=None
        Folder in which a state is kept every five iterations. A fit of the same ratings and parameters goes
        on from it, as if it had not stopped.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores. On Dask those of each worker; None is all it has.
    random_state : int, RandomState or None, default=None
    verbose : int or bool, default=0
        Show the progress.

    Attributes
    ----------
    user_factors_ : ndarray of shape (n_users, n_components)
    item_factors_ : ndarray of shape (n_items, n_components)
        Users and items without ratings have zeros.
    user_bias_, item_bias_, mean_ : ndarray of shape (n_users,) and (n_items,), float
        Zeros without biases.
    bias_reg_ : ndarray of shape (2,) or None
        Penalties of the biases of users and of items; None for implicit feedback.
    reg_ : float
        lambda.
    reg_offset_ : ndarray of shape (2,)
        Offsets of the counts of users and of items in the penalties of factors.
    confidence_ : float
        Mean confidence of the cells stored, for implicit feedback; 1 for ratings.
    user_feature_weights_, item_feature_weights_ : ndarray of shape (n_features + 1, n_components + 1) or None
        A and a: a row for each feature and the constant, a column for each factor and the bias.
    user_ids_, item_ids_ : ndarray
        Sorted id of each row of the factors: numbers of rows and columns of a matrix, or what the pairs held.
    user_draws_, item_draws_, variance_draws_ : ndarray of shape (n_draws, n_rows, n_columns), (n_draws,)
        Draws of factors and of the variance of a rating; with `n_draws`. With biases there are two more
        columns, the bias and 1 of users, 1 and the bias of items.
    rating_range_ : ndarray of shape (2,) or None
        Least and greatest rating, within which `predict` stays; None for implicit feedback.
    seen_ : csr_array of int8, shape (n_users, n_items), or None
        The cells that had a rating, those held out too. None after ``save(path, training=False)``, and for
        ratings that stayed on a cluster.
    n_iter_ : int
    solver_ : str
        The solver that "auto" chose.
    history_ : dict of arrays
        One entry an iteration: round, seconds, objective, updates, bytes_sent, waiting, staleness.
    validation_errors_ : ndarray of shape (n_iter,)
        Root mean square error on the ratings held out after each iteration, of predictions that are not
        clipped; with `early_stopping`.
    validation_scores_ : ndarray of shape (n_iter,)
        The same for implicit feedback: NDCG@20 of the choices held out, of at most 3,000 users.

    Warns
    -----
    ConvergenceWarning
        If biases alone (the mean, and a number for each user and item) predict better: ratings that trials or
        `early_stopping` held out; or else the ratings of the fit, each left out of the biases in turn.

    Raises
    ------
    DataError
        For a dense matrix, several ratings in one cell, NaN, infinities, ids of mixed kinds, and the like.

    References
    ----------
    Koren, Bell, Volinsky, "Matrix factorization techniques for recommender systems", Computer 2009. Hu,
    Koren, Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008. Takács, Pilászy,
    Tikk, "Applications of the conjugate gradient method for implicit feedback collaborative filtering",
    RecSys 2011. Rendle, Krichene, Zhang, Koren, "Revisiting the performance of iALS on item recommendation
    benchmarks", RecSys 2022 (penalties).

    Examples
    --------
    >>> from stradask.algorithms.factorization.matrix_factorization import MatrixFactorization
    >>> from stradask.datasets import make_ratings
    >>> R, _ = make_ratings(200, 80, 3, density=0.2, random_state=0)
    >>> mf = MatrixFactorization(4, random_state=0).fit(R)
    >>> mf.solver_, mf.user_factors_.shape
    ('als', (200, 4))
    >>> mf.predict([[0, 5], [1, 5]]).shape
    (2,)
    >>> mf.recommend([0, 1], n=3).items.shape
    (2, 3)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "reg": [Interval(Real, 0, np.inf, closed="neither"), StrOptions({"auto"})],
        "feature_reg": [Interval(Real, 0, np.inf, closed="neither")],
        "bias_reg": [Interval(Real, 0, np.inf, closed="left"), StrOptions({"auto"})],
        "reg_offset": [Interval(Real, 0, np.inf, closed="left"), StrOptions({"auto"})],
        "implicit": ["boolean"],
        "alpha": [Interval(Real, 0, np.inf, closed="neither")],
        "loss": [StrOptions({"squared", "bpr", "warp", "logistic"})],
        "solver": [StrOptions({"auto", *SOLVERS})],
        "non_negative": ["boolean"],
        "reg_exponent": [Interval(Real, 0, 4, closed="both"), StrOptions({"auto"})],
        "bias": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, np.inf, closed="left")],
        "learning_rate": [Interval(Real, 0, np.inf, closed="neither")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "n_draws": [Interval(Integral, 0, None, closed="left")],
        "n_blocks": [Interval(Integral, 1, 128, closed="both")],
        "wire": [None, StrOptions(set(FORMATS))],
        "dtype": [StrOptions({"float32", "float64"})],
        "engine": ENGINES,
        "checkpoint": [None, str, os.PathLike],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int = 32,
        *,
        reg: float | str = "auto",
        feature_reg: float = 10.0,
        bias_reg: float | str = "auto",
        reg_offset: float | str = "auto",
        implicit: bool = False,
        alpha: float = 3.0,
        loss: str = "squared",
        solver: str = "auto",
        non_negative: bool = False,
        reg_exponent: float | str = "auto",
        bias: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-4,
        learning_rate: float = 0.1,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        n_draws: int = 0,
        n_blocks: int = 8,
        wire: str | None = None,
        dtype: DTypeLike = "float32",
        engine: Engine = "local",
        checkpoint: FileName | None = None,
        n_jobs: int | None = None,
        random_state: RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        keep_parameters(self, locals())

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self,
        X: Matrix,
        y: Vector | None = None,
        sample_weight: Vector | None = None,
        *,
        user_features: Any = None,
        item_features: Any = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit the factors.

        Ctrl-C stops after the running iteration and keeps the model so far, with a warning.

        Parameters
        ----------
        X : sparse matrix of shape (n_users, n_items), Ratings, DataFrame, or array-like of (n_ratings, 2)
            Ratings or counts, of which every stored entry is one, a stored zero too, with their ids if they
            come from `stradask.datasets.read_ratings` or `fetch_movielens`; a table of three columns, the ids
            of users and of items, whole numbers or text, and ratings; or pairs of ids, with ratings in `y`.
            Also a Dask frame or array of these columns, and names of files for `read_ratings` or of Parquet
            files, see `stradask.datasets.ParquetTable`: on a cluster they stay there, by "als".
        y : array-like of shape (n_ratings,), optional
        sample_weight : array-like of shape (n_ratings,), optional
            Weights of the ratings of pairs, not negative. They are relative: divided by their mean, so that a
            factor common to all changes nothing. A rating of weight 0 equals one left out. Of counts they
            multiply the confidence. Other losses than squares refuse weights that differ.
        user_features, item_features : array-like or sparse matrix of shape (n_rows, n_features), optional
            Of the users (rows of `X`) or items (its columns), of a scale of about 1. With pairs, ``(ids,
            features)``; ids without a rating join the model.
        callback : callable, optional
            ``callback(info)`` after every iteration; `info` has round, total, objective, seconds, updates,
            history, and ``info.snapshot()``, the model so far, fitted. Returning True ends the fit.

        Returns
        -------
        self
        """
        self._validate_params()
        features = user_features, item_features
        with_features = any(table is not None for table in features)
        check_combination(self, with_features)
        with self._draft() as draft:
            entries, ids, features = read_ratings(draft, X, y, sample_weight, features, may_stay=True)
            draft.user_ids_, draft.item_ids_ = ids
            least, most = entries.value_range()
            if draft.implicit and not most > 0:
                raise DataError("implicit=True learns from values above zero, and there is none")
            if not draft.implicit and least == most and len(entries) > 1:
                raise DataError(
                    f"all {len(entries):,} ratings are {most:g}: ratings that are alike tell nothing of "
                    "tastes, and noise would be ranked; if each is a choice, as a click is, set implicit=True"
                )
            draft.solver_ = chosen_solver(draft, len(entries), with_features or entries.stays)
            draft.confidence_ = entries.average(np.abs) if draft.implicit else 1.0
            draft.rating_range_ = None if draft.implicit else np.array([least, most])
            draft._run(entries, features, callback)
        return self

    def partial_fit(self, X: Matrix, y: Vector | None = None, sample_weight: Vector | None = None) -> Self:
        """Take in new ratings, of known and of new users and items, without the old ones.

        Minimises, over the users and items that are rated anew, the terms of the new cells and how far the
        model moves from what it was: a row of n old ratings moves by x at the cost of ``n x' C x`` and of the
        penalty of x, with C the mean of q q' over the other side's old ratings, as if its own had been such.
        For implicit feedback rows are put at the minimum of the objective over all cells, in which old ones
        have their mean confidence, shifted such that without new cells the row would stay. A new row costs
        its penalty (from the mean that its features give, if `add_users` or `add_items` brought it in). All
        users' and all items' rows in turn, three times. A new rating of an old cell counts with the old
        one. The first call is a `fit`.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. After a fit to a matrix, rows and columns are those of the model, and perhaps more.
            Weights have mean 1 over the new ratings too.

        Returns
        -------
        self

        Raises
        ------
        DataError
            For other losses than squares, ids of another kind than those of the model, and new ids on a side
            with features.
        """
        if "user_factors_" not in vars(self):
            return self.fit(X, y, sample_weight)
        self._validate_params()
        self._check_folds("partial_fit")
        with self._draft() as draft:
            entries, ids, _ = read_ratings(draft, X, y, sample_weight)
            confidence = draft._widen_values(entries)
            old = draft._sides, (draft.user_ids_, draft.item_ids_), draft._seen
            entries, sides, seen, ids = widened(entries, ids, *old)
            draft._refuse_new_without_features(ids)
            sides = updated(entries, sides, seen, settings_of(draft), draft.confidence_)
            draft._take_rows(sides, ids, ((seen + entries.pattern()) != 0).astype(np.int8))
            draft.confidence_ = confidence
        return self

    def _widen_values(self, entries):
        """Widen the range of ratings by new ones; return the mean confidence of old and new cells."""
        if self.rating_range_ is not None:
            reach = np.append(self.rating_range_, entries.value_range())
            self.rating_range_ = np.array([reach.min(), reach.max()])
        total = entries.average(np.abs) * len(entries) + self.confidence_ * self._seen.nnz
        return total / (len(entries) + self._seen.nnz) if self.implicit else 1.0

    def _refuse_new_without_features(self, ids):
        for what, known, every in zip(("user", "item"), (self.user_ids_, self.item_ids_), ids, strict=True):
            if getattr(self, f"{what}_feature_weights_") is not None and len(every) > len(known):
                new = np.setdiff1d(every, known)[0].item()
                raise DataError(
                    f"the {what} {shortened(new)} is new, and the model has features of {what}s: call "
                    f"add_{what}s(ids, features) first"
                )

    def _run(self, entries, features, callback):
        seed = check_random_state(self.random_state).randint(2**31)
        fitted, watch = entries, None
        if self.early_stopping:
            fitted, watch = hold_out(self, entries, np.random.default_rng(seed))
        bias_reg, offsets = penalties(self, fitted)
        self.reg_offset_ = np.array(offsets)
        self.bias_reg_ = None if bias_reg is None else np.array(bias_reg)
        self.reg_ = penalty_factor(self, fitted, seed)
        seen = functools.cache(entries.pattern)
        fingerprint = fingerprint_of(self, entries, features, seed) if self.checkpoint is not None else None
        # What the solver held is let go before the pattern, which takes 5 bytes a rating, is made.
        sides, history = self._solve(fitted, features, seed, watch, callback, seen, fingerprint)
        if not (self.implicit or entries.stays):
            compare_fit_with_biases(self, sides, fitted, watch)
        return self._take(sides, history, watch, seen())

    def _solve(self, entries, features, seed, watch, callback, seen, fingerprint):
        """Run the solver; return the model and the history."""
        program = program_of(self, entries, settings_of(self), features, seed)

        def finished():
            settings, sides = settings_of(self), program.sides
            if self.solver_ == "sgd" and settings.bias and settings.bias_reg is not None:
                sides = with_best_biases(sides, entries, settings.bias_reg)
            return sides if self.solver_ == "als" else mapped(sides, features, entries, settings)

        done = run(
            program,
            program.schedule,
            max_rounds=settings_of(self).max_iter,
            engine=getattr(entries, "engine", self.engine),
            n_jobs=self.n_jobs,
            tol=self.tol if self.solver_ in ("als", "ccd") else None,
            callback=watched(watch, callback),
            snapshot=lambda history: copy.copy(self)._take(finished(), history, watch, seen()),
            checkpoint=self.checkpoint,
            checkpoint_every=_CHECKPOINT_EVERY,
            fingerprint=fingerprint,
            label=type(self).__name__,
            verbose=self.verbose,
        )
        return finished() if watch is None else watch.best, done.history

    def _take(self, sides, history, watch, seen):
        """Set the fitted attributes from the solver's model."""
        self._take_rows(sides, (self.user_ids_, self.item_ids_), seen)
        self.mean_ = sides.mean
        self.user_feature_weights_, self.item_feature_weights_ = sides.weights
        self.n_iter_ = len(history)
        self.history_ = history.as_dict()
        for name in (
            "validation_errors_",
            "validation_scores_",
            "item_counts_",
            *DRAWS,
        ):  # of an earlier fit, or a file
            self.__dict__.pop(name, None)
        self.__dict__.update(zip(DRAWS, sides.draws or (), strict=False))
        if watch is not None:
            setattr(self, watch.name, watch.record())
        return self


def program_of(model, entries, settings, features, seed):
    """Make the program of a `MatrixFactorization` whose ``solver_`` is known."""
    choices = model.implicit and not model.non_negative
    if choices and model.loss != "squared":
        return PairwiseRanking(entries, settings, seed)
    if model.solver_ == "als":
        program = ImplicitFeedback if choices else AlternatingLeastSquares
        return program(entries, settings, seed, features)
    if model.solver_ == "gibbs":
        return GibbsPolish(entries, settings, seed, model.engine)
    return SOLVERS[model.solver_](entries, settings, seed)
