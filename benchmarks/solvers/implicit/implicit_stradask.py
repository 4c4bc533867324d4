"""stradask: alternating least squares by conjugate gradients."""


class Solver:
    """`stradask.MatrixFactorization` for implicit feedback, watched by a callback."""

    name = "stradask"
    method = "ALS, two conjugate gradients a row (numba)"
    requires = ()
    libraries = ("numba", "scipy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build the matrix."""
        from scipy.sparse import csr_array

        cells = data.train_users, data.train_items
        self.R = csr_array((data.train_values, cells), shape=tuple(data.shape.tolist()))

    def run(self, watch):
        """One fit that the watch ends, an iteration a step."""
        from stradask import MatrixFactorization

        def tick(info):
            return not watch.tick(self.R.nnz, lambda: self.snapshot(info.snapshot()))

        MatrixFactorization(
            self.settings.n_components,
            implicit=True,
            alpha=self.settings.alpha,
            reg=self.settings.reg,
            reg_exponent=0,  # the objective of the others
            max_iter=100_000,
            tol=0,
            n_jobs=self.settings.n_jobs,
            random_state=self.settings.seed,
        ).fit(self.R, callback=tick)

    def snapshot(self, model):
        """Return the factors."""
        return {"user_factors": model.user_factors_, "item_factors": model.item_factors_}
