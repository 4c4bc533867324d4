"""The program of each solver."""

from typing import Any

from .solvers.als import AlternatingLeastSquares
from .solvers.ccd import CyclicCoordinateDescent
from .solvers.gibbs import GibbsPolish
from .solvers.implicit import ImplicitFeedback
from .solvers.pairwise import PairwiseRanking
from .solvers.sgd import RotationSGD

SOLVERS: dict[str, Any] = {
    "als": AlternatingLeastSquares,
    "ccd": CyclicCoordinateDescent,
    "gibbs": GibbsPolish,
    "sgd": RotationSGD,
}


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
