"""Ordinary problems of topics, factors and networks: time to the accuracy of the library usually taken.

Both sides train in turn, one thread, with the same parameters. The clock, the CPU time of the process, stands
still while a state is judged by held-out data (`objectives.lda`, `objectives.implicit`, errors of classes).
The level of a problem is the error at which the worse of the two ends, and a little (`TOLERANCES`): each
side's time is the time of its first state there. So none is helped by a better end.
"""

import time
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from .. import objectives, solvers
from ..runs.worker import load_solver

TOLERANCES = {  # by family: what the level is above an error
    "lda": lambda error: 0.005 * error,  # perplexity
    "implicit": lambda error: 0.01 * (1 - error),  # the error is 1 - NDCG
    "choices": lambda error: 0.01 * (1 - error),
    "mf": lambda error: 0.005 * error,  # root mean square
    "mlp": lambda error: 0.005,  # share of rows
}


class Watch:
    """CPU seconds of the training of one side, and the errors of states; what solvers call `tick`.

    Parameters
    ----------
    error : callable
        The error of a snapshot.
    ticks : int
        Steps after which the training ends.
    n_states : int, default=12
        States that are judged, at steps in equal ratios.
    """

    max_ticks = None

    def __init__(self, error, ticks, n_states=12):
        self.error, self.ticks = error, ticks
        self.judged = {round(step) for step in np.geomspace(1, ticks, n_states)}
        self.n_ticks, self.seconds = 0, 0.0
        self.states: list[tuple[float, float]] = []
        self.began = time.process_time()

    def restart(self):
        """Forget the time so far."""
        self.seconds, self.began = 0.0, time.process_time()

    def tick(self, work, snapshot):
        """Count a step; return True while the training should go on."""
        self.seconds += time.process_time() - self.began
        self.n_ticks += 1
        if self.n_ticks in self.judged:
            self.states.append((self.seconds, self.error(snapshot())))
        self.began = time.process_time()
        return self.n_ticks < self.ticks

    def seconds_to(self, level):
        """CPU seconds to the first state of at most this error."""
        return next(seconds for seconds, error in self.states if error <= level)


class Problem(NamedTuple):
    """`family` and `dataset` of the objective (a size for networks), the peer, parameters, steps a side."""

    family: str
    dataset: str
    peer: str
    parameters: dict
    ticks: tuple[int, int]
    quick: bool = False  # the objective's smaller data


_TOPICS = {"doc_topic_prior": 0.1, "topic_word_prior": 0.01, "optimize_priors": False}
_SKLEARN, _TOMOTOPY, _IMPLICIT = "sklearn", "tomotopy", "implicit"
PROBLEMS = {
    "LDA, 10 topics": Problem("lda", "docstrings", _SKLEARN, {"n_components": 10, **_TOPICS}, (60, 120)),
    "LDA, 50 topics": Problem("lda", "docstrings", _SKLEARN, {"n_components": 50, **_TOPICS}, (100, 120)),
    "LDA, 100 topics": Problem("lda", "synthetic", _TOMOTOPY, {"n_components": 100, **_TOPICS}, (100, 200)),
    "LDA, 20 topics": Problem("lda", "docstrings", _TOMOTOPY, {"n_components": 20, **_TOPICS}, (200, 200)),
    "LDA, 300 topics": Problem("lda", "docstrings", _TOMOTOPY, {"n_components": 300, **_TOPICS}, (100, 200)),
    "implicit ALS, 16 factors": Problem(
        "implicit", "generated", _IMPLICIT, {"n_components": 16, "alpha": 10.0, "reg": 10.0}, (15, 15), True
    ),
    "implicit ALS, 64 factors": Problem(
        "implicit", "generated", _IMPLICIT, {"n_components": 64, "alpha": 10.0, "reg": 10.0}, (15, 15), True
    ),
    "implicit ALS, 128 factors": Problem(
        "choices", "3,000 x 1,500", _IMPLICIT, {"n_components": 128, "alpha": 10.0, "reg": 100.0}, (10, 10)
    ),
    "implicit ALS, 256 factors": Problem(
        "choices", "3,000 x 1,500", _IMPLICIT, {"n_components": 256, "alpha": 10.0, "reg": 100.0}, (10, 10)
    ),
    "BPR, 16 factors": Problem(
        "choices", "3,000 x 1,500", _IMPLICIT, {"n_components": 16, "loss": "bpr"}, (60, 100)
    ),
    "BPR, 64 factors": Problem(
        "choices", "3,000 x 1,500", _IMPLICIT, {"n_components": 64, "loss": "bpr"}, (60, 100)
    ),
    "ratings, 16 factors": Problem(
        "mf", "generated", "libmf", {"n_components": 16, "penalties": 2}, (9, 9), True
    ),
    "ratings, 32 factors": Problem(
        "mf", "generated", "libmf", {"n_components": 32, "penalties": 2}, (9, 9), True
    ),
    "MLPClassifier, digits": Problem("mlp", "digits", _SKLEARN, {}, (30, 30)),
    "MLPClassifier, breast cancer, scaled": Problem("mlp", "breast_cancer", _SKLEARN, {}, (60, 60)),
    "MLPClassifier, 20,000 x 30": Problem("mlp", "20,000 x 30", _SKLEARN, {}, (20, 20)),
    "MLPClassifier, 60,000 x 784": Problem("mlp", "60,000 x 784", _SKLEARN, {}, (4, 4)),
}
_MADE = {
    "20,000 x 30": {"n_samples": 20_000, "n_features": 30, "n_informative": 15, "n_classes": 4},
    # As large as Fashion-MNIST.
    "60,000 x 784": {"n_samples": 60_000, "n_features": 784, "n_informative": 60, "n_classes": 10},
}
QUICK = ("LDA, 10 topics", "MLPClassifier, digits")


class Classes:
    """A quarter of labelled rows held out; the error is the share of them that is classed wrongly."""

    def __init__(self, dataset, seed=0):
        from sklearn import datasets as toys
        from sklearn.model_selection import train_test_split

        if dataset in _MADE:
            X, y = toys.make_classification(**_MADE[dataset], random_state=seed)
        else:
            X, y = getattr(toys, f"load_{dataset}")(return_X_y=True)
        X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
        self.X, self.held_X, self.y, self.held_y = train_test_split(X, y, test_size=0.25, random_state=seed)
        self.shape = self.X.shape

    def error(self, model):
        """Share of held-out rows whose class is not the model's."""
        return float((model.predict(self.held_X) != self.held_y).mean())


def _train_ours(data, watch, epochs):
    from ...algorithms.neural.mlp import MLPClassifier

    settings = {"max_iter": epochs, "tol": 0.0, "n_iter_no_change": epochs, "random_state": 0}
    MLPClassifier(**settings).fit(
        data.X, data.y, callback=lambda info: not watch.tick(len(data.y), info.snapshot)
    )


def _train_sklearn(data, watch, epochs):
    from sklearn.neural_network import MLPClassifier

    model, classes = MLPClassifier(random_state=0), np.unique(data.y)
    for _ in range(epochs):
        model.partial_fit(data.X, data.y, classes=classes)
        if not watch.tick(len(data.y), lambda: model):
            return


def _networks(problem):
    """Both sides' training, the error, and the shape of the data."""
    data = Classes(problem.dataset)
    sides = [
        lambda watch, train=train, ticks=ticks: train(data, watch, ticks)
        for train, ticks in zip((_train_ours, _train_sklearn), problem.ticks, strict=True)
    ]
    return sides, data.error, data.shape


class Choices:
    """Choices of users who have tastes, a tenth held out; the error is 1 - NDCG@20 of them.

    A user takes 60 items of those whose popularity, products of 12 tastes and Gumbel noise are largest.
    """

    N_TASTES, EACH = 12, 60

    def __init__(self, dataset, width, seed=0):
        n_users, n_items = (int(part.replace(",", "")) for part in dataset.split(" x "))
        rng = np.random.default_rng(seed)
        popular = rng.standard_normal(n_items)
        users, items = (rng.standard_normal((n, self.N_TASTES)) for n in (n_users, n_items))
        noisy = popular + 2 * users @ items.T / np.sqrt(self.N_TASTES) + rng.gumbel(size=(n_users, n_items))
        taken = np.argpartition(-noisy, self.EACH, axis=1)[:, : self.EACH].ravel()
        by, held = np.repeat(np.arange(n_users), self.EACH), rng.random(len(taken)) < 0.1
        self.train, self.test = (
            sparse.csr_array((np.ones(kept.sum(), np.float32), (by[kept], taken[kept])), (n_users, n_items))
            for kept in (~held, held)
        )
        self.parameters = {"n_components": width}
        self.shape = self.train.shape

    def error(self, factors):
        """1 - NDCG@20 of the held-out choices."""
        users, items = factors
        snapshot = {"user_factors": users, "item_factors": items}
        return 1 - objectives.find_objective("implicit").evaluate(self, snapshot)["ndcg"]


def _choose_ours(data, watch, steps, n_components, **settings):
    from ...algorithms.factorization.matrix_factorization import MatrixFactorization

    def factors(model):
        if "loss" not in settings:
            return model.user_factors_, model.item_factors_
        ones = np.ones((len(model.user_factors_), 1))  # which the bias of an item is added by
        return np.hstack([model.user_factors_, ones]), np.hstack(
            [model.item_factors_, model.item_bias_[:, None]]
        )

    alike = settings if "loss" in settings else {**settings, "reg_exponent": 0}
    common = {"implicit": True, "max_iter": steps, "tol": 0, "n_jobs": 1, "random_state": 0}
    MatrixFactorization(n_components, **common, **alike).fit(
        data.train, callback=lambda info: not watch.tick(1, lambda: factors(info.snapshot()))
    )


def _choose_implicit(data, watch, steps, n_components, **settings):
    common = {"factors": n_components, "iterations": steps, "num_threads": 1, "random_state": 0}
    if "loss" in settings:
        from implicit.bpr import BayesianPersonalizedRanking

        model = BayesianPersonalizedRanking(**common)
    else:
        from implicit.als import AlternatingLeastSquares

        model = AlternatingLeastSquares(**common, alpha=settings["alpha"], regularization=settings["reg"])
    model.fit(
        sparse.csr_matrix(data.train),
        show_progress=False,
        callback=lambda *_: watch.tick(1, lambda: (model.user_factors, model.item_factors)),
    )


def _of_choices(problem):
    """The same of choices; the factors of BPR carry the biases of items."""
    data = Choices(problem.dataset, problem.parameters["n_components"] + ("loss" in problem.parameters))
    sides = [
        lambda watch, train=train, ticks=ticks: train(data, watch, ticks, **problem.parameters)
        for train, ticks in zip((_choose_ours, _choose_implicit), problem.ticks, strict=True)
    ]
    return sides, data.error, data.shape


def _by_solvers(problem):
    """The same by the solver files of a family."""
    kind = objectives.find_objective(problem.family)
    objective = kind(problem.dataset, seed=0, parameters=problem.parameters, quick=problem.quick)
    found, data = solvers.find_solvers(problem.family), SimpleNamespace(**objective.arrays())
    metric = objective.metrics[0]

    def error(snapshot):
        value = objective.evaluate(snapshot)[metric.key]
        return value if metric.lower_is_better else 1 - value

    def side(name):
        settings = SimpleNamespace(**objective.settings(), n_jobs=1, seed=0)

        def run(watch):
            solver = load_solver(found[name].path)(settings)
            solver.set_data(data)
            watch.restart()
            solver.run(watch)

        return run

    return [side("stradask"), side(problem.peer)], error, objective.train.shape


READERS = {"mlp": _networks, "choices": _of_choices}


def missing(name):
    """The peer's name where a problem of this name needs one that is not installed, else None."""
    problem = PROBLEMS.get(name)
    if problem is None or problem.family == "mlp":
        return None
    family = "implicit" if problem.family == "choices" else problem.family
    return None if solvers.find_solvers(family)[problem.peer].is_installed() else problem.peer


def measure(problem, rounds):
    """Compare both sides: a dict of figures, by side."""
    sides, error, shape = READERS.get(problem.family, _by_solvers)(problem)
    with threadpool_limits(1):
        first, watches = [], []
        for run, ticks in zip(sides, problem.ticks, strict=True):
            began = time.process_time()
            run(Watch(error, 1))
            first.append(time.process_time() - began)
            watches.append([Watch(error, ticks)])
            run(watches[-1][0])
        worse = max(watch.states[-1][1] for (watch,) in watches)
        level = worse + TOLERANCES[problem.family](worse)
        for number in range(1, rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                watch = Watch(error, problem.ticks[side])
                sides[side](watch)
                watches[side].append(watch)
    figures: list[dict[str, Any]] = []
    for side in (0, 1):
        turns = [watch.seconds_to(level) for watch in watches[side]]
        end = watches[side][0].states[-1][1]
        figures.append({"seconds": float(np.median(turns)), "turns": turns, "first": first[side]})
        figures[-1] |= {"tol": None, "max_iter": problem.ticks[side], "excess": max(end / level - 1, 0.0)}
        figures[-1] |= {"error": end, "level": level}
    return {"stradask": figures[0], problem.peer: figures[1], "peer": problem.peer, "shape": list(shape)}
