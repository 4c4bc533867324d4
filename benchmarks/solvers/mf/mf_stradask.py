"""stradask: stochastic gradient descent in rotation."""

import numpy as np

PENALTIES = (0.03, 0.05, 0.02, 0.08, 0.12, 0.01)
TUNING = 8  # epochs


class Solver:
    """`stradask.MatrixFactorization` as a user calls it, with more and more epochs."""

    name = "stradask"
    method = "SGD in rotation, biases, Adagrad, falling rate (numba)"
    requires = ()
    libraries = ("numba", "scipy")

    def __init__(self, settings):
        self.settings = settings
        self.best: tuple = (np.inf, {})

    def set_data(self, data):
        """Build the matrix, and choose the penalty by the ratings to validate by."""
        from scipy.sparse import csr_array

        cells = data.train_users, data.train_items
        self.R = csr_array((data.train_values, cells), shape=tuple(data.shape.tolist()))
        self.validation = np.column_stack([data.validation_users, data.validation_items])
        self.values = data.validation_values
        penalties = PENALTIES[: self.settings.penalties]
        self.penalty = min(penalties, key=lambda penalty: self.error(self.fit(penalty, TUNING)))

    def error(self, model):
        """Return the mean square on the ratings to validate by."""
        return np.mean((model.predict(self.validation) - self.values) ** 2)

    def fit(self, penalty, epochs):
        """Fit once."""
        from stradask import MatrixFactorization

        return MatrixFactorization(
            self.settings.n_components,
            reg=penalty,
            solver="sgd",
            max_iter=epochs,
            n_jobs=self.settings.n_jobs,
            random_state=self.settings.seed,
        ).fit(self.R)

    def run(self, watch):
        """One fit a step, each from the beginning."""
        epochs = 1
        while True:
            watch.restart()
            model = self.fit(self.penalty, epochs)
            if not watch.tick(epochs * self.R.nnz, lambda model=model: self.snapshot(model)):
                return
            epochs += max(1, epochs // 2)

    def snapshot(self, model):
        """Return the model, or one of fewer epochs that was looked at before and validates better."""
        error = self.error(model)
        found = {
            "user_factors": model.user_factors_,
            "item_factors": model.item_factors_,
            "user_bias": model.user_bias_,
            "item_bias": model.item_bias_,
            "mean": np.float64(model.mean_),
            "penalty": np.float64(self.penalty),
        }
        self.best = min(self.best, (error, found), key=lambda pair: pair[0])
        return self.best[1]
