"""stradask: LightLDA on a GPU."""


class Solver:
    """`stradask.LatentDirichletAllocation` with ``sampler="light", device="cuda"``, watched by a callback."""

    name = "stradask-light-gpu"
    method = "LightLDA (CUDA)"
    requires = ()
    libraries = ("scipy",)
    device = "cuda"

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build the CSR matrix."""
        from stradask.benchmarks.solvers.lda._lda_stradask import matrix_of

        self.counts = matrix_of(data)

    def run(self, watch):
        """One `fit` that the watch ends, a sweep a step."""
        from stradask.benchmarks.solvers.lda._lda_stradask import fit

        self.model = fit(self.settings, self.counts, watch, "light", "cuda")
