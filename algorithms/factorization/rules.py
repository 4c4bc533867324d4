"""Which solver and which penalties matrix factorization takes by itself.

``python -m stradask.benchmarks.experiments.factorization_rules`` measures what they are worth: held-out
errors of both solvers and of biases alone, and NDCG of counts by the default penalty and by a grid. With
``--write`` it renews the record in ``benchmarks/results/factorization-rules``.
"""

# Ratings from which on gradient descent predicts better than alternating least squares:
# in the record least squares are better up to 28,000, gradient descent from 48,000 on, in all sets.
DESCENT_FROM = 30_000

REG = 0.05  # of ratings
BPR_REG = 0.01
EXPONENT, COUNTS_EXPONENT = 1.0, 0.5  # of the number of ratings or counts in the penalty of a row

# Penalties of a row of the mean size of counts, of which trials choose one: in all sets of the record the
# best is between, and NDCG has one maximum, a factor of two wide.
LADDER = (10.0, 16.0, 25.0, 40.0, 63.0, 100.0, 160.0, 250.0)
FIRST_STEP = 2  # of the ladder to begin with
