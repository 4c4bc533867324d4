"""Choice of the solver and its settings; parameters that do not go together are refused."""

import numpy as np

from ...errors import DataError
from . import rules
from .solvers.shrinkage import estimated
from .solvers.sides import Settings
from .tuning import chosen_reg, chosen_reg_of_ratings

BURN_IN = 2  # sweeps of "gibbs" that are not averaged
MAX_ITER = {"als": 15, "ccd": 15, "gibbs": 24, "sgd": 15}


def check_combination(model, with_features):
    """Refuse parameters of a `MatrixFactorization` that do not go together."""
    if model.implicit and model.solver not in ("auto", "als" if model.loss == "squared" else "sgd"):
        raise DataError(
            f"solver={model.solver!r} does not fit implicit feedback with loss={model.loss!r}; take 'auto'"
        )
    if model.loss != "squared" and (not model.implicit or model.non_negative):
        raise DataError(f"loss={model.loss!r} ranks choices: set implicit=True and non_negative=False")
    if with_features and (model.non_negative or model.n_draws):
        raise DataError(
            "user_features and item_features go with non_negative=False and n_draws=0, got "
            f"non_negative={model.non_negative} and n_draws={model.n_draws}"
        )
    if model.non_negative and model.solver == "sgd":
        raise DataError("solver='sgd' cannot keep factors from being negative; take 'als', 'ccd' or 'auto'")
    if model.non_negative and model.solver == "gibbs":
        raise DataError("solver='gibbs' draws factors of any sign; take 'als', 'ccd' or 'auto'")
    most = (MAX_ITER["gibbs"] if model.max_iter is None else model.max_iter) - BURN_IN
    if model.n_draws > 0 and (model.solver != "gibbs" or model.n_draws > most):
        raise DataError(
            f"n_draws={model.n_draws} keeps draws of solver='gibbs', at most one a sweep after the first "
            f"{BURN_IN}, {max(most, 0)} in all; got solver={model.solver!r}: set it, or a larger max_iter"
        )
    if model.checkpoint is not None and model.early_stopping:
        raise DataError(
            "early_stopping=True keeps the best model of this call, which a checkpoint does not hold: "
            "set one of the two"
        )


def chosen_solver(model, n_ratings, with_features):
    """Return the solver's name; refuse a number format for blocks where none travel."""
    solver = _chosen(model, n_ratings, with_features)
    if model.wire is not None and solver != "sgd":
        raise DataError(
            f"wire={model.wire!r} is for the blocks of solver='sgd', but solver={solver!r} has none: set "
            "wire=None, or solver='sgd'"
        )
    return solver


def _chosen(model, n_ratings, with_features):
    if model.loss != "squared":
        return "sgd"
    if model.solver != "auto":
        return model.solver
    if model.implicit or model.non_negative or with_features:
        return "als"
    return "sgd" if n_ratings >= rules.DESCENT_FROM else "als"


def penalties(model, entries):
    """Penalties of users' and items' biases, None if `reg` is theirs, and the pair of offsets of `reg`."""
    if model.implicit:
        return None, implicit_offsets(model, entries.shape)
    bias_reg, offset = (model.bias_reg,) * 2, model.reg_offset
    if "auto" in (model.bias_reg, model.reg_offset):
        found = estimated(entries.sample(), model.n_components)
        bias_reg = found[0] if model.bias_reg == "auto" else bias_reg
        offset = found[1] if model.reg_offset == "auto" else offset
    return tuple(float(reg) for reg in bias_reg), (float(offset),) * 2


def implicit_offsets(model, shape):
    """Offsets of implicit feedback; "auto" counts each cell that is not stored as 1 / `alpha` of a choice."""
    if model.reg_offset != "auto":
        return (float(model.reg_offset),) * 2
    if model.loss != "squared":
        return 0.0, 0.0
    return shape[1] / model.alpha, shape[0] / model.alpha


def settings_of(model):
    """Settings of a `MatrixFactorization` whose ``solver_`` is known."""
    return Settings(
        n_components=model.n_components,
        reg=float(getattr(model, "reg_", 0.0) if model.reg == "auto" else model.reg),
        feature_reg=model.feature_reg,
        bias_reg=None if model.bias_reg_ is None else tuple(np.asarray(model.bias_reg_).tolist()),
        offsets=tuple(np.asarray(model.reg_offset_).tolist()),
        exponent=exponent_of(model),
        bias=model.bias and (not model.implicit or model.loss != "squared"),
        non_negative=model.non_negative,
        implicit=model.implicit,
        max_iter=MAX_ITER[model.solver_] if model.max_iter is None else model.max_iter,
        learning_rate=model.learning_rate,
        n_blocks=model.n_blocks,
        wire=model.wire,
        n_jobs=model.n_jobs,
        n_draws=model.n_draws,
        loss=model.loss,
    )


def exponent_of(model):
    """The value of `reg_exponent`."""
    if model.reg_exponent != "auto":
        return float(model.reg_exponent)
    return rules.COUNTS_EXPONENT if model.implicit and model.loss == "squared" else rules.EXPONENT


def penalty_factor(model, entries, seed):
    """The value of `reg`; "auto" tries some, but for losses of pairs."""
    if model.reg != "auto":
        return float(model.reg)
    if model.loss != "squared":
        return rules.PAIRWISE_REG[model.loss]
    return chosen_reg(model, entries, seed) if model.implicit else chosen_reg_of_ratings(model, entries, seed)
