"""Which solver a factorization takes, with what settings; what does not go together is refused."""

from ...errors import DataError
from .sides import Settings

MAX_ITER = {"als": 15, "ccd": 15, "gibbs": 24, "sgd": 15}
_MANY = 50_000  # ratings from which on "auto" takes gradient descent


def check_combination(model, with_features):
    """Refuse parameters of a `MatrixFactorization` that do not go together."""
    if model.implicit and model.solver not in ("auto", "sgd" if model.loss == "bpr" else "als"):
        raise DataError(
            f"solver={model.solver!r} does not fit implicit feedback with loss={model.loss!r}; take 'auto'"
        )
    if model.loss == "bpr" and (not model.implicit or model.non_negative):
        raise DataError("loss='bpr' ranks choices: set implicit=True and non_negative=False")
    if with_features and (model.solver not in ("auto", "als") or model.loss == "bpr" or model.non_negative):
        raise DataError(
            "user_features and item_features go with least squares, solver='als' or 'auto', loss='squared' "
            f"and non_negative=False; got solver={model.solver!r}, loss={model.loss!r}, "
            f"non_negative={model.non_negative}"
        )
    if model.non_negative and model.solver == "sgd":
        raise DataError("solver='sgd' cannot keep factors from being negative; take 'als', 'ccd' or 'auto'")
    if model.non_negative and model.solver == "gibbs":
        raise DataError("solver='gibbs' draws factors of any sign; take 'als', 'ccd' or 'auto'")
    if model.checkpoint is not None and model.early_stopping:
        raise DataError(
            "early_stopping=True keeps the best model of this call, which a checkpoint does not hold: "
            "set one of the two"
        )
    if model.implicit and model.early_stopping:
        raise DataError(
            "early_stopping=True takes an error on held-out ratings, which implicit=True has not; stop "
            "by a callback, for instance on evaluate_ranking(info.snapshot(), held_out)"
        )


def chosen_solver(model, n_ratings, with_features):
    """Return the solver's name."""
    if model.loss == "bpr":
        return "sgd"
    if model.solver != "auto":
        return model.solver
    if model.implicit or model.non_negative or with_features:
        return "als"
    return "sgd" if n_ratings >= _MANY else "als"


def settings_of(model):
    """Return what solvers read of a `MatrixFactorization` whose ``solver_`` is known."""
    scale = model.scale_reg
    if scale == "auto":
        scale = not model.implicit or model.loss == "bpr"
    return Settings(
        n_components=model.n_components,
        reg=model.reg,
        feature_reg=model.feature_reg,
        scale_reg=scale,
        bias=model.bias and (not model.implicit or model.loss == "bpr"),
        non_negative=model.non_negative,
        implicit=model.implicit,
        max_iter=MAX_ITER[model.solver_] if model.max_iter is None else model.max_iter,
        learning_rate=model.learning_rate,
        n_blocks=model.n_blocks,
        half_blocks=model.half_blocks,
        n_jobs=model.n_jobs,
    )
