"""Names for what public signatures take and return; the docstrings say more.

scikit-learn, SciPy, Dask and pandas come without annotations, so that what may be a matrix or frame of theirs
is `Any` to a type checker: counts, kinds of settings and results are checked, shapes and formats are not.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Array: TypeAlias = NDArray[Any]
Matrix: TypeAlias = Any  # array-like, DataFrame, sparse matrix, or where the data lie
Vector: TypeAlias = Any  # array-like, Series, or a Dask array with a Matrix of Dask's
Names: TypeAlias = Sequence[str]
FileName: TypeAlias = str | os.PathLike[str]
RandomState: TypeAlias = int | np.random.RandomState
Engine: TypeAlias = str | Any  # "local", "dask", an address, or a distributed.Client
Callback: TypeAlias = Callable[[Any], Any]  # gets a scheduler's Info; True ends the fit

__all__ = [
    "Array",
    "ArrayLike",
    "Callback",
    "DTypeLike",
    "Engine",
    "FileName",
    "Matrix",
    "Names",
    "RandomState",
    "Vector",
]
