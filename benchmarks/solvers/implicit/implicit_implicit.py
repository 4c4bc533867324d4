"""implicit: alternating least squares by conjugate gradients (Cython, OpenMP)."""

import numpy as np


class _Enough(Exception):
    """Ends a fit from its callback: the library has no other way."""


class Solver:
    """`implicit.als.AlternatingLeastSquares`, watched by a callback."""

    name = "implicit"
    method = "ALS, three conjugate gradients a row (Cython)"
    requires = ("implicit==0.7.3", "numpy", "scipy", "threadpoolctl")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build the matrix."""
        from scipy.sparse import csr_matrix

        cells = data.train_users, data.train_items
        self.R = csr_matrix((data.train_values.astype(np.float32), cells), shape=tuple(data.shape.tolist()))

    def run(self, watch):
        """One fit that the watch ends, an iteration a step."""
        from implicit.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits

        model = AlternatingLeastSquares(
            factors=self.settings.n_components,
            regularization=self.settings.reg,
            alpha=self.settings.alpha,
            iterations=100_000,
            num_threads=self.settings.n_jobs,
            random_state=self.settings.seed,
        )

        def tick(*_):
            if not watch.tick(self.R.nnz, lambda: self.snapshot(model)):
                raise _Enough

        try:
            with threadpool_limits(1, "blas"):  # as the library asks for
                model.fit(self.R, show_progress=False, callback=tick)
        except _Enough:
            return

    def snapshot(self, model):
        """Return the factors."""
        return {"user_factors": model.user_factors, "item_factors": model.item_factors}
