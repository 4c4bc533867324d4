"""Designs and targets of the linear benchmarks: four generated kinds, a path, and svmlight files.

The letters are those of the benchmark's tables. Columns of dense designs have mean 0 and variance 1;
sparse ones are as drawn. Targets of the regressions have mean 0, so that a fit without an intercept is
sensible; a classification has the signs of such a target as its labels.
"""

from pathlib import Path

import numpy as np
from scipy import sparse

from .. import datasets
from ..errors import DataError

SNR = 3.0  # standard deviation of the signal over that of the noise


def ar_design(rng, n_samples, n_features, correlation=0.5):
    """Return a dense design whose columns follow an autoregressive process: neighbours correlate."""
    X = rng.standard_normal((n_samples, n_features))
    step = np.sqrt(1 - correlation**2)
    for j in range(1, n_features):
        X[:, j] = correlation * X[:, j - 1] + step * X[:, j]
    return _standardised(X)


def block_design(rng, n_samples, n_features, block_size=50, correlation=0.95):
    """Return a dense design in which the columns of a block share one factor."""
    factors = np.repeat(rng.standard_normal((n_samples, n_features // block_size)), block_size, axis=1)
    own = rng.standard_normal((n_samples, n_features))
    return _standardised(np.sqrt(correlation) * factors + np.sqrt(1 - correlation) * own)


def sparse_design(rng, n_samples, n_features, density=1e-3):
    """Return a CSC design of independent normal entries at random places."""
    X = sparse.random(
        n_samples, n_features, density, format="csc", random_state=rng, data_rvs=rng.standard_normal
    )
    return _checked_csc(X)


# name: (design, its size, informative columns), whole and for a quick look.
REGRESSIONS = {
    "a": ((ar_design, 500, 20_000, 100), (ar_design, 200, 4_000, 50)),
    "b": ((ar_design, 5_000, 2_000, 100), (ar_design, 1_500, 600, 50)),
    "c": ((sparse_design, 20_000, 200_000, 500), (sparse_design, 5_000, 30_000, 100)),
    "d": ((block_design, 1_000, 10_000, 100), (block_design, 400, 2_000, 50)),
}
CLASSIFICATIONS = {
    "a": ((ar_design, 2_000, 5_000, 50), (ar_design, 500, 1_000, 20)),
    "c": ((sparse_design, 20_000, 200_000, 500), (sparse_design, 5_000, 30_000, 100)),
}
PATHS = {"path": ({"n_samples": 2_000, "n_features": 200_000}, {"n_samples": 500, "n_features": 20_000})}


def load_regression(name, *, seed, quick=False):
    """Return a design (dense in Fortran order, or CSC) and a target of mean 0.

    `name` is "a" (500 x 20,000, neighbours correlate), "b" (the same kind, 5,000 x 2,000), "c" (sparse,
    20,000 x 200,000), "d" (1,000 x 10,000, blocks of 50 with correlation 0.95), "path" (sparse, 2,000 x
    200,000), or the path of an svmlight file. `quick` makes smaller designs of the same kinds.
    """
    if name in PATHS:
        X, y, _ = datasets.make_sparse_regression(
            **PATHS[name][quick], n_informative=50, density=5e-3, random_state=seed
        )
        return _checked_csc(X), y - y.mean()
    if name in REGRESSIONS:
        return _drawn(REGRESSIONS[name][quick], seed)
    X, y = _read(name, [*REGRESSIONS, *PATHS])
    return X, y - y.mean()


def load_classification(name, *, seed, quick=False, several=False):
    """Return a design (dense in Fortran order, or CSC) and labels -1 and 1.

    `name` is "a" (2,000 x 5,000, neighbours correlate), "c" (sparse, 20,000 x 200,000), or the path of an
    svmlight file with two different labels; with `several` it may have more, which are numbered from 0.
    """
    if name in CLASSIFICATIONS:
        X, y = _drawn(CLASSIFICATIONS[name][quick], seed)
        return X, np.where(y > 0, 1.0, -1.0)
    X, y = _read(name, CLASSIFICATIONS)
    labels, numbers = np.unique(y, return_inverse=True)
    if several and len(labels) > 2:
        return X, numbers.astype(np.float64)
    if len(labels) != 2:
        raise DataError(f"--dataset: {name} has {len(labels)} different labels; two are needed")
    return X, np.where(y == labels[1], 1.0, -1.0)


def _drawn(case, seed):
    """Draw a design, and a target that a few normal coefficients and normal noise make."""
    design, n_samples, n_features, n_informative = case
    rng = np.random.default_rng(seed)
    X = design(rng, n_samples, n_features)
    coef = np.zeros(n_features)
    coef[rng.choice(n_features, n_informative, replace=False)] = rng.standard_normal(n_informative)
    signal, noise = X @ coef, rng.standard_normal(n_samples)
    y = signal + noise * (np.linalg.norm(signal) / np.linalg.norm(noise) / SNR)
    return X, y - y.mean()


def _read(name, known):
    if not Path(name).exists():
        raise DataError(f"--dataset: {name!r} is neither one of {', '.join(known)} nor a file that exists")
    X, y = datasets.read_svmlight(name)
    return _checked_csc(X), y


def _standardised(X):
    X -= X.mean(axis=0)
    X /= X.std(axis=0)
    return np.asfortranarray(X)


def _checked_csc(X):
    """Return a CSC matrix with sorted 32-bit indices, which every library here takes as it is."""
    X = sparse.csc_matrix(X)
    X.sort_indices()
    if X.nnz >= 2**31:
        raise DataError(f"{X.nnz:,} non-zeros; the peers take fewer than 2**31")
    return sparse.csc_matrix((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
