"""Programs, schedules, sessions and the engine that ties them; knows no algorithm.

Names are loaded when first used; they are in ``__init__.pyi``.
"""

from .._lazy import lazy_names as _lazy_names

_PLACES, __getattr__, __dir__ = _lazy_names(__name__, __file__)
__all__ = [*_PLACES]
