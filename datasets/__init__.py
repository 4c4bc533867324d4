"""Readers, writers, generators with known truth, fetchers, and bundled real data.

Names are loaded when first used: ``import stradask.datasets`` imports none of pooch, tqdm, pandas,
matplotlib or numba. They are in ``__init__.pyi``.
"""

from .._lazy import lazy_names as _lazy_names

_PLACES, __getattr__, __dir__ = _lazy_names(__name__, __file__)
__all__ = [*_PLACES]
