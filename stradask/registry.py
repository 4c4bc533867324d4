"""The one list of models that the command line knows.

A family adds an entry here: then ``stradask fit`` fits its estimator, ``stradask demo`` shows it, and the
help names it. Nothing is imported before it is used, so that ``stradask --help`` answers at once.
"""

import difflib
import importlib
import re
from dataclasses import dataclass

from .errors import DataError, in_brief, shortened


@dataclass(frozen=True)
class Model:
    """The entry of a model on the command line.

    `estimator` is the public name of its class, `data` a key of `stradask.cli.inputs.READERS`, `summary` a
    line for the help. `report` is ``module:function``: ``function(estimator, data, test)`` returns what `fit`
    tells of a fitted model, a dict for JSON and a text; `data` and `test` (or None) are what the reader gave.
    `responds` says that documents have a response each, the column that ``--target`` names.
    `demo`, if there is one, is ``module:function``: ``function(settings, say)`` takes at most 15 seconds
    after compiling and returns a part of the demo (see `stradask.demo.page`).

    Examples
    --------
    >>> from stradask.registry import MODELS
    >>> MODELS["lda"].estimator_class().__name__
    'LatentDirichletAllocation'
    """

    name: str
    estimator: str
    data: str
    summary: str
    report: str
    demo: str | None = None
    responds: bool = False

    def estimator_class(self):
        """Return the class of the estimator."""
        import stradask

        return getattr(stradask, self.estimator)


def _linear(name, estimator, data, summary, demo=None):
    return Model(name, estimator, data, summary, "stradask.cli.reports.linear:report", demo)


def _bayesian(name, estimator, data, summary, demo=False):
    demo = "stradask.demo.bayes:run" if demo else None
    return Model(name, estimator, data, summary, "stradask.cli.reports.bayes:report", demo)


def _of_items(name, estimator, summary):
    return Model(name, estimator, "ratings", summary, "stradask.cli.reports.factorization:report_choices")


def _network(name, estimator, data, summary):
    return Model(name, estimator, data=data, summary=summary, report="stradask.cli.reports.neural:report")


MODELS = {
    model.name: model
    for model in (
        Model(
            "lda",
            "LatentDirichletAllocation",
            data="counts",
            summary="topics of documents by latent Dirichlet allocation",
            report="stradask.cli.reports.topics:report",
            demo="stradask.demo.topics:run",
        ),
        Model(
            "dmr",
            "DMRTopicModel",
            data="counts",
            summary="topics whose shares depend on covariates of documents",
            report="stradask.cli.reports.topics:report_covariates",
        ),
        Model(
            "dynamic",
            "DynamicTopicModel",
            data="counts",
            summary="topics whose words change over time",
            report="stradask.cli.reports.topics:report_over_time",
        ),
        Model(
            "gsdmm",
            "GSDMM",
            data="counts",
            summary="topics of short texts, one topic a text",
            report="stradask.cli.reports.topics:report",
        ),
        Model(
            "biterm",
            "BitermTopicModel",
            data="counts",
            summary="topics of short texts, from pairs of words",
            report="stradask.cli.reports.topics:report",
        ),
        Model(
            "hdp",
            "HDPTopicModel",
            data="counts",
            summary="topics, and how many there are",
            report="stradask.cli.reports.topics:report",
        ),
        Model(
            "keyatm",
            "KeyATM",
            data="counts",
            summary="topics with keywords, of which a switch says how much they matter",
            report="stradask.cli.reports.topics:report",
        ),
        Model(
            "slda",
            "SupervisedLDA",
            data="counts",
            summary="topics that explain a number, a class or a count of each document",
            report="stradask.cli.reports.topics:report_responses",
            responds=True,
        ),
        _linear(
            "lasso",
            "Lasso",
            "targets",
            "linear regression with few coefficients",
            demo="stradask.demo.linear:run",
        ),
        _linear("elastic-net", "ElasticNet", "targets", "the same, correlated columns sharing coefficients"),
        _linear(
            "sparse-logistic", "SparseLogisticRegression", "classes", "two or more classes by few columns"
        ),
        _linear("lasso-cv", "LassoCV", "targets", "lasso, its penalty chosen by cross-validation"),
        _linear("elastic-net-cv", "ElasticNetCV", "targets", "elastic net, chosen by cross-validation"),
        _linear(
            "sparse-logistic-cv",
            "SparseLogisticRegressionCV",
            "classes",
            "sparse logistic, by cross-validation",
        ),
        _linear(
            "logistic",
            "LogisticRegression",
            "classes",
            "two or more classes, ridge or lasso penalty",
            demo="stradask.demo.logistic:run",
        ),
        _linear("ridge", "Ridge", "targets", "linear regression with a squared penalty"),
        _linear("poisson", "PoissonRegressor", "targets", "counts by a linear model of their logarithm"),
        _linear("glm", "GLM", "targets", "generalised linear models with standard errors"),
        _linear("group-lasso", "GroupLasso", "targets", "groups of columns that have coefficients, or none"),
        _linear("group-lasso-cv", "GroupLassoCV", "targets", "the same, chosen by cross-validation"),
        _linear("group-logistic", "GroupLogisticRegression", "classes", "classes by groups of columns"),
        _linear("sparse-glm", "SparseGLM", "targets", "any loss and any sparse penalty"),
        _linear("sparse-poisson", "SparsePoissonRegressor", "targets", "counts by few columns"),
        _linear("multi-task-lasso", "MultiTaskLasso", "several targets", "several targets by few columns"),
        _linear(
            "multi-task-lasso-cv",
            "MultiTaskLassoCV",
            "several targets",
            "the same, chosen by cross-validation",
        ),
        _linear(
            "multi-task-elastic-net", "MultiTaskElasticNet", "several targets", "with a squared penalty, too"
        ),
        _linear(
            "multi-task-elastic-net-cv",
            "MultiTaskElasticNetCV",
            "several targets",
            "the same, chosen by cross-validation",
        ),
        _linear("cox", "CoxRegression", "survival", "times until events, some censored, by few columns"),
        _linear("huber", "HuberRegressor", "targets", "linear regression that outliers do not pull"),
        _linear("quantile", "QuantileRegressor", "targets", "a quantile by few columns"),
        _network("mlp-classifier", "MLPClassifier", "classes", "two or more classes by a neural network"),
        _network("mlp-regressor", "MLPRegressor", "targets", "numbers by a neural network"),
        _bayesian(
            "bayesian-logistic",
            "BayesianLogisticRegression",
            "dense classes",
            "two classes, a posterior",
            demo=True,
        ),
        _bayesian(
            "bayesian-linear", "BayesianLinearRegression", "dense targets", "a posterior of linear regression"
        ),
        _bayesian("bayesian-poisson", "BayesianPoissonRegression", "dense targets", "counts, a posterior"),
        Model(
            "bayesian-glm",
            "BayesianGLM",
            data="frame",
            summary="a posterior of generalised linear and mixed models, by formula",
            report="stradask.cli.reports.bayes:report_formula",
        ),
        Model(
            "mf",
            "MatrixFactorization",
            data="ratings",
            summary="factors of users and items from ratings or counts, for recommendations",
            report="stradask.cli.reports.factorization:report",
            demo="stradask.demo.factorization:run",
        ),
        _of_items("ease", "EASE", "recommendations by a regression of each item on all others"),
        _of_items("slim", "SLIM", "the same with few weights, none of them negative"),
        _of_items("item-knn", "ItemKNN", "recommendations by items that have users in common"),
        _of_items("popularity", "Popularity", "the items that most users have"),
    )
}


def find_model(name):
    """Return the entry of a name, or of an estimator as in ``matrix-factorization``.

    An unknown one raises a DataError that lists those there are.
    """
    for model in MODELS.values():
        if name in (model.name, re.sub("(?<=[a-z])(?=[A-Z])", "-", model.estimator).lower()):
            return model
    near = difflib.get_close_matches(name, MODELS, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    names = in_brief(", ".join(MODELS), 300)
    raise DataError(f"MODEL is {shortened(name, 40)}; {meant}there are: {names} (stradask fit --help)")


def model_of(estimator):
    """Return the entry of an estimator's class; a class without one raises a DataError."""
    name = type(estimator).__name__
    for model in MODELS.values():
        if model.estimator == name:
            return model
    raise DataError(f"a {name} cannot be used from the command line; there are: {', '.join(MODELS)}")


def resolve(place):
    """Return the function that ``module:function`` names."""
    module, _, function = place.partition(":")
    return getattr(importlib.import_module(module), function)
