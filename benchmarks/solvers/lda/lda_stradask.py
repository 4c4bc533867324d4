"""stradask: its default sampler, Gibbs sampling, above 700 topics after passes in WarpLDA's order."""


class Solver:
    """`stradask.LatentDirichletAllocation` as a user calls it, watched by a callback.

    Checking and laying out the data are a part of `fit`, so for this system they count as training.
    """

    name = "stradask"
    method = "collapsed Gibbs, above 700 topics WarpLDA order first (numba)"
    requires = ()
    libraries = ("numba", "scipy")

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Build the CSR matrix."""
        from stradask.benchmarks.solvers.lda._lda_stradask import matrix_of

        self.counts = matrix_of(data)

    def run(self, watch):
        """One `fit` that the watch ends, a sweep a step.

        To warm up, both samplers that "auto" may choose: on little data it would compile one alone.
        """
        from stradask.benchmarks.solvers.lda._lda_stradask import fit

        for sampler in ("warp", "gibbs") if watch.max_ticks is not None else ("auto",):
            self.model = fit(self.settings, self.counts, watch, sampler, "cpu")
