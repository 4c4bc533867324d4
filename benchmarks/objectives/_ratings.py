"""Ratings for the benchmarks of matrix factorization: data sets by name, and their split."""

import hashlib
import itertools
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy import sparse

from ... import datasets
from ...errors import DataError, shortened

# Users, items, share of cells; and the same of a quick look.
GENERATED = {
    "generated": ((20_000, 5000, 0.02), (2000, 800, 0.05)),
    "generated-10m": ((70_000, 10_000, 10 / 700), (2500, 1000, 0.04)),
}
LEVELS = {"generated": np.arange(1, 6), "generated-10m": np.arange(1, 11) / 2}
SHARE = 0.1  # of the ratings to validate by, and of those to test by


class RatingsObjective:
    """Shared by both families of matrix factorization: the data in three parts."""

    procedure = "training"
    default_datasets = ("generated",)
    max_seconds, quick_max_seconds = 6.0, 1.0
    n_states = 12
    implicit: ClassVar[bool]

    def __init__(self, dataset, *, seed, parameters, quick=False):
        for name, value in parameters.items():
            kinds, needed = ((int, float), "number") if self.implicit else (int, "whole number")
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                raise DataError(f"--param: {name} is {value!r}; a {needed} above 0 is needed")
        self.dataset, self.seed, self.parameters = dataset, seed, parameters
        R = load_ratings(dataset, seed, implicit=self.implicit, quick=quick)
        self.train, self.validation, self.test = three_parts(R, seed)

    def describe(self):
        """Return the facts of the data for the records."""
        return describe(self.dataset, self.seed, self.train, self.validation, self.test)

    def settings(self):
        """Settings that every solver is given."""
        return dict(self.parameters)

    def arrays(self):
        """Triples to learn from and to validate by."""
        return arrays_of(self.train, self.validation)

    def sample(self):
        """Part of the users, to warm up on."""
        return arrays_of(self.train[:300], self.validation[:300])


def load_ratings(name, seed, *, implicit, quick):
    """Return ratings (or counts) as a CSR matrix, users x items.

    `name` is "generated" or "generated-10m" (drawn by `seed`, with a long tail; 2 and 10 million ratings),
    "movielens-100k", "movielens-1m" (downloaded once), or a file for `stradask.datasets.read_ratings`. With
    `implicit`, ratings of 4 or more of a file or of MovieLens become counts of 1.
    """
    if name in GENERATED:
        n_users, n_items, density = GENERATED[name][quick]
        options = {"implicit": True} if implicit else {"noise": 0.5, "levels": LEVELS[name]}
        drawn, _ = datasets.make_ratings(n_users, n_items, 12, density=density, random_state=seed, **options)
        return sparse.csr_array(drawn)
    if name.startswith("movielens-"):
        R = datasets.fetch_movielens(name.partition("-")[2]).matrix
    elif Path(name).exists():
        R = datasets.read_ratings(name).matrix
    else:
        raise DataError(
            f"--dataset: {shortened(name)} is neither generated, generated-10m, movielens-100k, movielens-1m "
            "nor a file"
        )
    cells = R.tocoo()
    kept = cells.data >= 4 if implicit else np.ones(cells.nnz, bool)
    values = np.ones(kept.sum()) if implicit else cells.data
    return sparse.csr_array((values, (cells.row[kept], cells.col[kept])), shape=R.shape)


def three_parts(R, seed):
    """Divide entries at random: to learn from, to validate by, and to test by."""
    draws = np.random.default_rng(seed).random(R.nnz)
    bounds = (0, SHARE, 2 * SHARE, 1)
    cells = R.tocoo()
    parts = []
    for low, high in itertools.pairwise(bounds):
        chosen = (draws >= low) & (draws < high)
        values = cells.data[chosen], (cells.row[chosen], cells.col[chosen])
        parts.append(sparse.csr_array(values, shape=R.shape))
    test, validation, train = parts
    if not (test.nnz and validation.nnz and train.nnz):
        raise DataError(f"{R.nnz} ratings are too few to hold some out")
    return train, validation, test


def arrays_of(train, validation):
    """Return the arrays for solvers: triples of both parts, and the shape."""
    parts = {"train": train.tocoo(), "validation": validation.tocoo()}
    arrays = {"shape": np.array(train.shape)}
    for name, part in parts.items():
        arrays |= {
            f"{name}_users": part.row.astype(np.int32),
            f"{name}_items": part.col.astype(np.int32),
            f"{name}_values": part.data.astype(np.float32),
        }
    return arrays


def describe(dataset, seed, train, validation, test):
    """Return the facts of the data for the records."""
    digest = hashlib.sha256()
    for part in (train, validation, test):
        for array in (part.indptr, part.indices, part.data):
            digest.update(np.ascontiguousarray(array).tobytes())
    return {
        "name": Path(dataset).name,
        "fingerprint": digest.hexdigest()[:16],
        "split_seed": seed,
        "train_users": train.shape[0],
        "train_items": train.shape[1],
        "train_ratings": int(train.nnz),
        "validation_ratings": int(validation.nnz),
        "test_ratings": int(test.nnz),
    }


def factors_of(snapshot, shape, n_components):
    """Return checked factors of users and items."""
    found = []
    for name, n in zip(("user_factors", "item_factors"), shape, strict=True):
        table = np.asarray(snapshot[name], dtype=np.float64)
        if table.shape != (n, n_components) or not np.isfinite(table).all():
            raise DataError(f"{name} of shape {table.shape} are not {n} x {n_components} finite numbers")
        found.append(table)
    return found
