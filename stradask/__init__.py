"""Distributed machine learning, called like scikit-learn.

Public names are loaded when first used, so that ``import stradask`` stays light: it imports
none of numba, dask.distributed, cupy, matplotlib or pandas. They are in ``__init__.pyi``.
"""

import os.path

from ._lazy import lazy_names as _lazy_names

# In a checkout the subpackages are folders next to this one; an installed package has them inside.
if not os.path.isdir(os.path.join(__path__[0], "algorithms")):
    __path__.append(os.path.dirname(os.path.abspath(__path__[0])))

_PLACES, __getattr__, __dir__ = _lazy_names(__name__, __file__)
__all__ = [*_PLACES]
