"""Recommenders of choices and of ratings on one protocol: ``stradask bench recommend``.

Each user's choices are divided: a fifth to test by, an eighth of the rest to validate by. Every system tries
the same number of settings, drawn once from its own grid by the seed, on what is left; the one with the best
NDCG@20 on the validation part is fitted anew to both, and judged by the test part, which is looked at once.
Intervals are of users: a mean and 1.96 standard errors. Seconds are CPU seconds of the last fit on one
thread. The seconds of an iteration are the difference of fits of 15 and of 5 iterations, over 10. A system
with a random start is fitted from three. The table of ratings is made by `recommend_ratings`.
"""

import importlib.util
import itertools
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ... import datasets
from ...algorithms.factorization.items.ease import EASE
from ...algorithms.factorization.items.knn import ItemKNN
from ...algorithms.factorization.items.popularity import Popularity
from ...algorithms.factorization.items.slim import SLIM
from ...algorithms.factorization.matrix_factorization import MatrixFactorization
from ...algorithms.factorization.ranking import evaluate_ranking
from ...algorithms.factorization.recommender import Recommender
from ...algorithms.factorization.rules import COUNTS_EXPONENT
from ...errors import DataError
from ..objectives._ratings import load_ratings
from ..pages.page import Page, where
from ..pages.tables import Table
from ..run import about_run

BUDGET, QUICK_BUDGET = 12, 3  # settings that each system tries
PLACES = (10, 20, 100)
ITERATIONS, FEWER = 15, 5
SEEDS = 3  # random starts of the fits that are judged
_PENALTIES = (3.0, 10.0, 30.0, 100.0)


class System(NamedTuple):
    """A recommender: how it is made, and the values of its parameters, all of which are combined."""

    make: Any
    grid: dict
    iterates: bool = False
    seeded: bool = False  # takes random_state


def _of_implicit(name, **fixed):
    """A class of the package `implicit`, with the methods that `evaluate_ranking` calls."""

    def make(**settings):
        return Implicit(name, {**fixed, **settings})

    return make


class Implicit(Recommender):
    """A model of the package `implicit`; its `recommend` is called as its documentation says."""

    _training = "interactions_"

    def __init__(self, name, settings):
        self._name, self._settings = name, settings

    def fit(self, R):
        """Fit to choices."""
        from implicit.als import AlternatingLeastSquares
        from implicit.nearest_neighbours import BM25Recommender, CosineRecommender, TFIDFRecommender

        kinds = {
            "als": AlternatingLeastSquares,
            "cosine": CosineRecommender,
            "tfidf": TFIDFRecommender,
            "bm25": BM25Recommender,
        }
        settings = dict(self._settings)
        kind = kinds[settings.pop("similarity", self._name)]
        self._model = kind(num_threads=1, **settings)
        self._R = sparse.csr_matrix(R, dtype=np.float32)
        self.interactions_ = sparse.csr_array(self._R)
        self.user_ids_, self.item_ids_ = (np.arange(n) for n in R.shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it converts the matrix that it made itself
            self._model.fit(self._R, show_progress=False)
        return self

    def recommend(self, users, n):
        """Items and scores, -1 and -inf where it gives no more."""
        items, scores = self._model.recommend(users, self._R[users], N=n, filter_already_liked_items=True)
        none = (items < 0) | (scores <= np.finfo(np.float32).min)
        return np.where(none, -1, items), np.where(none, -np.inf, scores)

    def _item_counts(self):
        return np.bincount(self._R.indices, minlength=self._R.shape[1])


def systems():
    """The systems by name; those of `implicit` where it is installed."""
    factors = {"n_components": (32, 64), "alpha": (1.0, 3.0, 10.0), "penalty": _PENALTIES}
    found = {
        "popularity": System(Popularity, {}),
        "ItemKNN": System(
            ItemKNN,
            {
                "n_neighbors": (20, 50, 100, 200, 400),
                "similarity": ("cosine", "tfidf", "bm25"),
                "shrinkage": (0.0, 10.0),
            },
        ),
        "EASE": System(EASE, {"reg": tuple(np.geomspace(20, 4000, 24).round().tolist())}),
        "SLIM": System(
            SLIM, {"l1_reg": (1.0, 3.0, 10.0, 30.0), "l2_reg": (10.0, 100.0, 300.0), "tol": (1e-3,)}
        ),
        "MatrixFactorization": System(_Factors, factors, iterates=True, seeded=True),
        "MatrixFactorization, defaults": System(_default_factors, {}, iterates=True, seeded=True),
    }
    if importlib.util.find_spec("implicit") is not None:
        grid = {"factors": (32, 64), "alpha": (1.0, 3.0, 10.0), "regularization": _PENALTIES}
        found["implicit: ALS"] = System(
            _of_implicit("als", iterations=ITERATIONS, random_state=0), grid, iterates=True, seeded=True
        )
        neighbours = {"K": (20, 50, 100, 200, 400), "similarity": ("cosine", "tfidf", "bm25")}
        found["implicit: neighbours"] = System(_of_implicit("cosine"), neighbours)
    return found


def _default_factors(iterations=ITERATIONS, random_state=0):
    return MatrixFactorization(implicit=True, max_iter=iterations, tol=0, random_state=random_state)


class _Factors:
    """`MatrixFactorization` whose penalty of a mean row is given, as trials of the default give it."""

    def __init__(self, penalty, iterations=ITERATIONS, random_state=0, **settings):
        self._penalty = penalty
        self._settings = {"max_iter": iterations, "random_state": random_state, **settings}

    def fit(self, R):
        """Fit to choices; return the fitted model."""
        scale = (R.nnz / R.shape[0] + R.shape[1] / self._settings["alpha"]) ** COUNTS_EXPONENT
        reg = self._penalty / scale
        return MatrixFactorization(implicit=True, reg=reg, tol=0, **self._settings).fit(R)


def settings_of(system, budget, seed):
    """As many settings as the budget has, different ones, drawn from the grid; all, if there are no more."""
    every = [
        dict(zip(system.grid, values, strict=True)) for values in itertools.product(*system.grid.values())
    ]
    chosen = np.random.default_rng(seed).permutation(len(every))[:budget]
    return [every[k] for k in sorted(chosen)]


def measure(system, train, validation, test, budget, seed):
    """Tune and judge a system: figures of a record."""
    tried = settings_of(system, budget, seed)
    began, scores = time.process_time(), []
    for settings in tried:
        scores.append(evaluate_ranking(system.make(**settings).fit(train), validation, 20)["ndcg"])
    tuning = time.process_time() - began
    best = tried[int(np.argmax(scores))]
    whole = sparse.csr_array(train + validation)
    began = time.process_time()
    model = system.make(**best).fit(whole)
    seconds = time.process_time() - began
    began = time.process_time()
    figures = evaluate_ranking(model, test, list(PLACES))
    judging = time.process_time() - began
    each = evaluate_ranking(model, test, 20, by_user=True)
    found = {
        "settings": best,
        "tried": len(tried),
        "validation_ndcg": float(max(scores)),
        "tuning_seconds": tuning,
        "seconds": seconds,
        "recommend_seconds": judging,
        "figures": figures,
        "half_width": float(1.96 * each["ndcg"].std(ddof=1) / np.sqrt(len(each["ndcg"]))),
    }
    if system.seeded:
        starts = (system.make(**best, random_state=k).fit(whole) for k in range(1, SEEDS))
        again = [evaluate_ranking(start, test, 20)["ndcg"] for start in starts]
        found["by_seed"] = [figures["ndcg@20"], *again]
    if system.iterates:
        began = time.process_time()
        system.make(**best, iterations=FEWER).fit(whole)
        found["iteration_seconds"] = (seconds - (time.process_time() - began)) / (ITERATIONS - FEWER)
    return found


def parts(R, seed):
    """Divide each user's choices: to learn from, to validate by, to test by."""
    rest, test = datasets.rating_split(R, test_size=0.2, random_state=seed)
    train, validation = datasets.rating_split(rest, test_size=0.125, random_state=seed + 1)
    return train, validation, test


def choices(name, seed, quick):
    """A table of choices: every rating of a file, or counts that are drawn."""
    if name.startswith("generated"):
        R = load_ratings(name, seed, implicit=True, quick=quick)
    elif name.startswith("movielens-"):
        R = datasets.fetch_movielens(name.partition("-")[2]).matrix
    else:
        R = datasets.read_ratings(name).matrix
    R = sparse.csr_array(R)
    R = sparse.csr_array((np.ones(R.nnz, np.float32), R.indices, R.indptr), shape=R.shape)
    return R if not quick else R[:600]


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench recommend`` ask for."""
    from . import recommend_ratings

    known = systems()
    if args.param:
        raise DataError("--param: recommend has none")
    unknown = [name for name in args.against or () if name not in ("implicit", "libmf")]
    if unknown:
        raise DataError(
            f"--against: recommend compares with implicit and libmf, where installed, not {unknown[0]}"
        )
    common = about_run("recommend")
    budget = QUICK_BUDGET if args.quick else BUDGET
    for name in args.dataset or ("generated",):
        train, validation, test = parts(choices(name, args.seed, args.quick), args.seed)
        data = {"name": name.rpartition("/")[2], "users": train.shape[0], "items": train.shape[1]}
        data |= {"train": int(train.nnz), "validation": int(validation.nnz), "test": int(test.nnz)}
        for label, system in known.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # users without choices, gaps of single settings
                figures = measure(system, train, validation, test, budget, args.seed)
            on_record({**common, "table": "choices", "system": label, "data": data, **figures})
            tell(f"{data['name']}, {label}: NDCG@20 {figures['figures']['ndcg@20']:.4f}")
        for label, facts, figures in recommend_ratings.records(name, args.seed, budget, args.quick):
            on_record({**common, "table": "ratings", "system": label, "data": facts, **figures})
            tell(f"{facts['name']}, {label}: RMSE {figures['figures']['rmse']:.4f}")


# Tables ---------------------------------------------------------------------------------------------------


def _columns():
    def figure(name, digits=4):
        return lambda record: f"{record['figures'][name]:.{digits}f}"

    def seconds(name):
        return lambda record: f"{record[name]:.3g}" if name in record else ""

    return {
        "NDCG@20": lambda record: f"{record['figures']['ndcg@20']:.4f} ± {record['half_width']:.4f}",
        "NDCG@10": figure("ndcg@10"),
        "NDCG@100": figure("ndcg@100"),
        "recall@20": figure("recall@20"),
        "coverage@20": figure("coverage@20", 3),
        "novelty@20, bits": figure("novelty@20", 2),
        "fit, s": seconds("seconds"),
        "an iteration, s": seconds("iteration_seconds"),
        "of starts, least and most": lambda record: (
            f"{min(record['by_seed']):.4f}, {max(record['by_seed']):.4f}" if "by_seed" in record else ""
        ),
        "settings tried": lambda record: str(record["tried"]),
    }


def tables(records):
    """A table of choices and one of ratings for each data set, of its last run."""
    from . import recommend_ratings

    last = {
        (record["data"]["name"], record.get("table", "choices"), record["system"]): record
        for record in records  # before there was a table of ratings they did not say which
    }
    found = []
    for name, kind in dict.fromkeys((name, kind) for name, kind, _ in last):
        rows = [(system, record) for (*where, system), record in last.items() if where == [name, kind]]
        data = rows[0][1]["data"]
        caption = (
            f"{name}: {data['train'] + data['validation']:,} {kind} of {data['items']:,} items by "
            f"{data['users']:,} users to learn from, {data['test']:,} to test by"
        )
        columns = _columns() if kind == "choices" else recommend_ratings.columns()
        found.append(Table.of(rows, columns, "", caption))
    return found


def table(records):
    """Return the tables as text."""
    return "\n\n".join(one.text() for one in tables(records))


def page(records):
    """Return the page of a run of the benchmark."""
    whole = Page("stradask bench recommend: choices and ratings").text(
        "Every system tries the same number of settings on a validation part; the best is fitted anew, and "
        "judged once by the test part. Intervals are 1.96 standard errors over users; systems with a random "
        f"start are fitted from {SEEDS}. CPU seconds of the last fit on one thread, on {where(records[0])}."
    )
    for one in tables(records):
        whole = whole.table(*one)
    return whole.add_facts(records[0], "machine")
