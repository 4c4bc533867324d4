"""Which solver and which penalties matrix factorization takes by itself.

``python -m stradask.benchmarks.experiments.ratings.factorization_rules`` measures what they are worth:
held-out errors of both solvers and of biases alone, and NDCG of counts by the default penalty and by a grid.
With ``--write`` it renews the record in ``benchmarks/results/factorization-rules``.
"""

# Ratings from which on gradient descent predicts better than alternating least squares:
# in the record least squares are better up to 2,400, gradient descent from 5,760 on, in all sets but
# FilmTrust, where they differ by 0.06 %.
DESCENT_FROM = 5_000

# Penalties of ratings, in standard deviations of these, of which trials choose one, beginning in the middle:
# in the record the best is 0.03 or 0.045 but for the noisiest and the smallest sets.
RATINGS_LADDER = (0.016, 0.0225, 0.032, 0.045, 0.064, 0.09)
RATINGS_FIRST = 3  # of the ladder
TRIALS_FROM, TRIALS_TO = 500, 200_000  # ratings; fewer tell too little, and more have no need
# Of losses of pairs; chosen on MovieLens-100K. Gradients of WARP are up to 1 + 1/2 + ... larger.
PAIRWISE_REG = {"bpr": 0.03, "warp": 1.0, "logistic": 0.03}
EXPONENT, COUNTS_EXPONENT = 1.0, 0.5  # of the number of ratings or counts in the penalty of a row

# Penalties of a row of the mean size of counts, of which trials choose one: in all sets of the record the
# best is between, and NDCG has one maximum, a factor of two wide.
LADDER = (10.0, 16.0, 25.0, 40.0, 63.0, 100.0, 160.0, 250.0)
FIRST_STEP = 2  # of the ladder to begin with
