"""What tests of matrix factorization share."""

import numpy as np


def pairs_of(R):
    """Return the cells of a sparse matrix as pairs, and their values."""
    R = R.tocoo()
    return np.column_stack([R.row, R.col]), R.data
