"""LIBMF: parallel stochastic gradient descent (C++, OpenMP), through its Python binding."""

import numpy as np

PENALTIES = (0.05, 0.07, 0.03, 0.1, 0.14, 0.02)
TUNING = 20  # iterations


class Solver:
    """`libmf.mf.MF` with more and more iterations; the rate is that which LIBMF's documentation uses."""

    name = "libmf"
    method = "SGD, Adagrad, no biases (C++; as pip builds it)"
    requires = ("libmf==0.9.2", "numpy")
    rate = 0.1

    def __init__(self, settings):
        self.settings = settings
        self.best: tuple = (np.inf, {})

    def set_data(self, data):
        """Make triples, and choose the penalty by the ratings to validate by."""
        self.shape = data.shape.tolist()
        columns = data.train_users, data.train_items, data.train_values
        self.triples = np.column_stack(columns).astype(np.float32)
        self.data = data
        penalties = PENALTIES[: self.settings.penalties]
        self.penalty = min(
            penalties, key=lambda penalty: self.error(self.arrays(self.fit(penalty, TUNING), penalty))
        )

    def error(self, found):
        """Return the mean square on the ratings to validate by."""
        users, items = self.data.validation_users, self.data.validation_items
        products = np.einsum("ij,ij->i", found["user_factors"][users], found["item_factors"][items])
        predictions = products + found["user_bias"][users] + found["item_bias"][items]
        return np.mean((predictions - self.data.validation_values) ** 2)

    def fit(self, penalty, iterations):
        """Fit once; bins are at least as many as the library asks for."""
        from libmf import mf

        engine = mf.MF(
            k=self.settings.n_components,
            nr_iters=iterations,
            nr_threads=self.settings.n_jobs,
            nr_bins=max(20, 2 * self.settings.n_jobs + 1),
            lambda_p1=0.0,
            lambda_q1=0.0,
            lambda_p2=penalty,
            lambda_q2=penalty,
            eta=self.rate,
            quiet=True,
        )
        engine.fit(self.triples)
        return engine.model

    def run(self, watch):
        """One fit a step, each from the beginning."""
        iterations = 1
        while True:
            watch.restart()
            model = self.fit(self.penalty, iterations)
            if not watch.tick(iterations * len(self.triples), lambda model=model: self.snapshot(model)):
                return
            iterations += max(1, iterations // 2)

    def snapshot(self, model):
        """Return the model, or one of fewer iterations that was looked at before and validates better."""
        found = self.arrays(model, self.penalty)
        self.best = min(self.best, (self.error(found), found), key=lambda pair: pair[0])
        return self.best[1]

    def arrays(self, model, penalty):
        """Return the factors; rows without ratings, of NaN, are predicted by the mean as the library does."""
        found = {"mean": np.zeros(()), "penalty": np.array(penalty)}
        for name, pointer, length, n in (
            ("user", model.P, model.m, self.shape[0]),
            ("item", model.Q, model.n, self.shape[1]),
        ):
            table = np.full((n, model.k), np.nan)
            table[:length] = np.ctypeslib.as_array(pointer, (length, model.k))
            empty = np.isnan(table).any(axis=1)
            table[empty] = 0
            found[f"{name}_factors"], found[f"{name}_bias"] = table, np.where(empty, model.b, 0.0)
        return found
