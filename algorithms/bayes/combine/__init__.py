"""Combiners: draws of the posterior from draws of the subposteriors."""


def __getattr__(name):
    if name in ("CombinationRefused", "combine"):
        from . import combiners

        return getattr(combiners, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
