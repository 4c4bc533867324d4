"""Distributed machine learning, called like scikit-learn.

Public names are loaded when first used, so that ``import stradask`` stays light: it imports
none of numba, dask.distributed, cupy, matplotlib or pandas.
"""

import importlib
import os.path
from typing import TYPE_CHECKING

from ._version import __version__

# In a checkout the subpackages are folders next to this one; an installed package has them inside.
if not os.path.isdir(os.path.join(__path__[0], "algorithms")):
    __path__.append(os.path.dirname(os.path.abspath(__path__[0])))

if TYPE_CHECKING:
    from . import datasets, scheduler
    from .algorithms._persistence import load
    from .algorithms.bayes import functions, priors
    from .algorithms.bayes.adapters.bridgestan import from_bridgestan
    from .algorithms.bayes.adapters.numpyro import from_numpyro
    from .algorithms.bayes.adapters.pointer import from_pointer
    from .algorithms.bayes.adapters.pymc import from_pymc
    from .algorithms.bayes.glm import BayesianGLM
    from .algorithms.bayes.linear import BayesianLinearRegression
    from .algorithms.bayes.logistic import BayesianLogisticRegression
    from .algorithms.bayes.models.mixture import GaussianMixtureDensity
    from .algorithms.bayes.parameters import cholesky, interval, ordered, positive, real, simplex, unit
    from .algorithms.bayes.poisson import BayesianPoissonRegression
    from .algorithms.bayes.posterior.draws import Posterior
    from .algorithms.bayes.sample import sample
    from .algorithms.factorization.cross_validation import cross_validate
    from .algorithms.factorization.items.ease import EASE
    from .algorithms.factorization.items.knn import ItemKNN
    from .algorithms.factorization.items.popularity import Popularity
    from .algorithms.factorization.items.slim import SLIM
    from .algorithms.factorization.matrix_factorization import MatrixFactorization
    from .algorithms.factorization.ranking import evaluate_ranking, ranking_metrics
    from .algorithms.inputs.table_pipeline import table_pipeline
    from .algorithms.linear.cv.estimators import ElasticNetCV, LassoCV, SparseLogisticRegressionCV
    from .algorithms.linear.cv.logistic_cv import LogisticRegressionCV
    from .algorithms.linear.cv.ridge_cv import RidgeCV
    from .algorithms.linear.inference.glm import GLM
    from .algorithms.linear.inference.residuals import plot_residuals, residuals
    from .algorithms.linear.lasso import ElasticNet, Lasso
    from .algorithms.linear.logistic_regression import LogisticRegression
    from .algorithms.linear.path import enet_path, lasso_path
    from .algorithms.linear.plotting import plot_path
    from .algorithms.linear.poisson import PoissonRegressor
    from .algorithms.linear.ridge import Ridge
    from .algorithms.linear.selection.filter import KnockoffSelection
    from .algorithms.linear.selection.stability import StabilitySelection
    from .algorithms.linear.sparse_logistic import SparseLogisticRegression
    from .algorithms.linear.structured.classifier import GroupLogisticRegression
    from .algorithms.linear.structured.cox import CoxRegression
    from .algorithms.linear.structured.cv import SparseGLMCV
    from .algorithms.linear.structured.losses import Loss
    from .algorithms.linear.structured.named_cv import GroupLassoCV, MultiTaskElasticNetCV, MultiTaskLassoCV
    from .algorithms.linear.structured.penalties import Penalty
    from .algorithms.linear.structured.regressors import (
        GroupLasso,
        HuberRegressor,
        MultiTaskElasticNet,
        MultiTaskLasso,
        QuantileRegressor,
        SparsePoissonRegressor,
    )
    from .algorithms.linear.structured.sparse_glm import SparseGLM
    from .algorithms.neural.mlp import MLPClassifier, MLPRegressor
    from .algorithms.neural.torch_models import TorchClassifier, TorchRegressor
    from .algorithms.optimize.gradient_check import check_gradient
    from .algorithms.optimize.minimize import minimize
    from .algorithms.plotting import plot_history
    from .algorithms.topics.biterm import BitermTopicModel
    from .algorithms.topics.dmr import DMRTopicModel
    from .algorithms.topics.dynamic import DynamicTopicModel
    from .algorithms.topics.gsdmm import GSDMM
    from .algorithms.topics.hdp import HDPTopicModel
    from .algorithms.topics.key_atm import KeyATM
    from .algorithms.topics.lda import LatentDirichletAllocation
    from .algorithms.topics.reading.alignment import align
    from .algorithms.topics.supervised import SupervisedLDA
    from .datasets.split import rating_split
    from .datasets.texts import text_counts
    from .scheduler.coordinator import attach
    from .scheduler.dashboard.plugin import dashboard

# Where each public name lives.
_PLACES = {
    "BayesianLinearRegression": ".algorithms.bayes.linear",
    "BayesianLogisticRegression": ".algorithms.bayes.logistic",
    "BayesianGLM": ".algorithms.bayes.glm",
    "BayesianPoissonRegression": ".algorithms.bayes.poisson",
    "BitermTopicModel": ".algorithms.topics.biterm",
    "CoxRegression": ".algorithms.linear.structured.cox",
    "DMRTopicModel": ".algorithms.topics.dmr",
    "DynamicTopicModel": ".algorithms.topics.dynamic",
    "EASE": ".algorithms.factorization.items.ease",
    "ElasticNet": ".algorithms.linear.lasso",
    "ElasticNetCV": ".algorithms.linear.cv.estimators",
    "GLM": ".algorithms.linear.inference.glm",
    "GSDMM": ".algorithms.topics.gsdmm",
    "GaussianMixtureDensity": ".algorithms.bayes.models.mixture",
    "GroupLasso": ".algorithms.linear.structured.regressors",
    "GroupLassoCV": ".algorithms.linear.structured.named_cv",
    "GroupLogisticRegression": ".algorithms.linear.structured.classifier",
    "HDPTopicModel": ".algorithms.topics.hdp",
    "HuberRegressor": ".algorithms.linear.structured.regressors",
    "KeyATM": ".algorithms.topics.key_atm",
    "KnockoffSelection": ".algorithms.linear.selection.filter",
    "ItemKNN": ".algorithms.factorization.items.knn",
    "Lasso": ".algorithms.linear.lasso",
    "LassoCV": ".algorithms.linear.cv.estimators",
    "LatentDirichletAllocation": ".algorithms.topics.lda",
    "LogisticRegression": ".algorithms.linear.logistic_regression",
    "LogisticRegressionCV": ".algorithms.linear.cv.logistic_cv",
    "Loss": ".algorithms.linear.structured.losses",
    "MLPClassifier": ".algorithms.neural.mlp",
    "MLPRegressor": ".algorithms.neural.mlp",
    "MatrixFactorization": ".algorithms.factorization.matrix_factorization",
    "MultiTaskElasticNet": ".algorithms.linear.structured.regressors",
    "MultiTaskElasticNetCV": ".algorithms.linear.structured.named_cv",
    "MultiTaskLasso": ".algorithms.linear.structured.regressors",
    "MultiTaskLassoCV": ".algorithms.linear.structured.named_cv",
    "Penalty": ".algorithms.linear.structured.penalties",
    "PoissonRegressor": ".algorithms.linear.poisson",
    "Popularity": ".algorithms.factorization.items.popularity",
    "Posterior": ".algorithms.bayes.posterior.draws",
    "QuantileRegressor": ".algorithms.linear.structured.regressors",
    "Ridge": ".algorithms.linear.ridge",
    "RidgeCV": ".algorithms.linear.cv.ridge_cv",
    "SLIM": ".algorithms.factorization.items.slim",
    "SparseGLM": ".algorithms.linear.structured.sparse_glm",
    "SparseGLMCV": ".algorithms.linear.structured.cv",
    "SparseLogisticRegression": ".algorithms.linear.sparse_logistic",
    "SparseLogisticRegressionCV": ".algorithms.linear.cv.estimators",
    "SparsePoissonRegressor": ".algorithms.linear.structured.regressors",
    "StabilitySelection": ".algorithms.linear.selection.stability",
    "SupervisedLDA": ".algorithms.topics.supervised",
    "TorchClassifier": ".algorithms.neural.torch_models",
    "TorchRegressor": ".algorithms.neural.torch_models",
    "align": ".algorithms.topics.reading.alignment",
    "attach": ".scheduler.coordinator",
    "check_gradient": ".algorithms.optimize.gradient_check",
    "cholesky": ".algorithms.bayes.parameters",
    "cross_validate": ".algorithms.factorization.cross_validation",
    "dashboard": ".scheduler.dashboard.plugin",
    "enet_path": ".algorithms.linear.path",
    "evaluate_ranking": ".algorithms.factorization.ranking",
    "from_bridgestan": ".algorithms.bayes.adapters.bridgestan",
    "from_numpyro": ".algorithms.bayes.adapters.numpyro",
    "from_pointer": ".algorithms.bayes.adapters.pointer",
    "from_pymc": ".algorithms.bayes.adapters.pymc",
    "interval": ".algorithms.bayes.parameters",
    "lasso_path": ".algorithms.linear.path",
    "load": ".algorithms._persistence",
    "minimize": ".algorithms.optimize.minimize",
    "ordered": ".algorithms.bayes.parameters",
    "plot_history": ".algorithms.plotting",
    "plot_path": ".algorithms.linear.plotting",
    "plot_residuals": ".algorithms.linear.inference.residuals",
    "positive": ".algorithms.bayes.parameters",
    "ranking_metrics": ".algorithms.factorization.ranking",
    "rating_split": ".datasets.split",
    "real": ".algorithms.bayes.parameters",
    "residuals": ".algorithms.linear.inference.residuals",
    "sample": ".algorithms.bayes.sample",
    "simplex": ".algorithms.bayes.parameters",
    "table_pipeline": ".algorithms.inputs.table_pipeline",
    "text_counts": ".datasets.texts",
    "unit": ".algorithms.bayes.parameters",
}
_SUBPACKAGES = {
    "datasets": ".datasets",
    "errors": ".errors",
    "functions": ".algorithms.bayes.functions",
    "priors": ".algorithms.bayes.priors",
    "scheduler": ".scheduler",
}

__all__ = [
    "EASE",
    "GLM",
    "GSDMM",
    "SLIM",
    "BayesianGLM",
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianPoissonRegression",
    "BitermTopicModel",
    "CoxRegression",
    "DMRTopicModel",
    "DynamicTopicModel",
    "ElasticNet",
    "ElasticNetCV",
    "GaussianMixtureDensity",
    "GroupLasso",
    "GroupLassoCV",
    "GroupLogisticRegression",
    "HDPTopicModel",
    "HuberRegressor",
    "ItemKNN",
    "KeyATM",
    "KnockoffSelection",
    "Lasso",
    "LassoCV",
    "LatentDirichletAllocation",
    "LogisticRegression",
    "LogisticRegressionCV",
    "Loss",
    "MLPClassifier",
    "MLPRegressor",
    "MatrixFactorization",
    "MultiTaskElasticNet",
    "MultiTaskElasticNetCV",
    "MultiTaskLasso",
    "MultiTaskLassoCV",
    "Penalty",
    "PoissonRegressor",
    "Popularity",
    "Posterior",
    "QuantileRegressor",
    "Ridge",
    "RidgeCV",
    "SparseGLM",
    "SparseGLMCV",
    "SparseLogisticRegression",
    "SparseLogisticRegressionCV",
    "SparsePoissonRegressor",
    "StabilitySelection",
    "SupervisedLDA",
    "TorchClassifier",
    "TorchRegressor",
    "__version__",
    "align",
    "attach",
    "check_gradient",
    "cholesky",
    "cross_validate",
    "dashboard",
    "datasets",
    "enet_path",
    "errors",
    "evaluate_ranking",
    "from_bridgestan",
    "from_numpyro",
    "from_pointer",
    "from_pymc",
    "functions",
    "interval",
    "lasso_path",
    "load",
    "minimize",
    "ordered",
    "plot_history",
    "plot_path",
    "plot_residuals",
    "positive",
    "priors",
    "ranking_metrics",
    "rating_split",
    "real",
    "residuals",
    "sample",
    "scheduler",
    "simplex",
    "table_pipeline",
    "text_counts",
    "unit",
]


def __getattr__(name):
    if name in _PLACES:
        value = getattr(importlib.import_module(_PLACES[name], __name__), name)
    elif name in _SUBPACKAGES:
        value = importlib.import_module(_SUBPACKAGES[name], __name__)
    else:
        raise AttributeError(f"module 'stradask' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
