"""Intervals from draws: of a posterior, or of a bootstrap."""

import numpy as np

from ..errors import DataError, shortened


def check_level(level):
    """Check the probability of an interval; return it as a float."""
    number = isinstance(level, (int, float, np.number)) and not isinstance(level, bool)
    if not number or not 0 < level < 1:
        raise DataError(f"level must be a number above 0 and below 1, such as 0.9, got {shortened(level)}")
    return float(level)


def least_draws(level):
    """How many draws an interval of this probability needs: 19 for 0.9."""
    return int(np.ceil(round(2 / (1 - check_level(level)) - 1, 9)))


def check_draws(n_draws, level, remedy):
    """Refuse a level for which there are too few draws."""
    if n_draws < (least := least_draws(level)):
        raise DataError(
            f"level={level:g} needs {least} draws, and there are {n_draws}: {remedy}, or take a smaller level"
        )


def interval_of_draws(draws, level, remedy="draw more"):
    """Ends, along axis 0, between which a further draw lies with the probability `level`, tails equal.

    The rank of a further draw among n exchangeable ones is uniform on n + 1 values. So the ends are at the
    ranks (n + 1) (1 -+ level) / 2, which Weibull takes. The usual linear quantiles hold a further draw with
    the probability level (n - 1) / (n + 1) only.
    """
    check_draws(len(draws), level, remedy)
    return np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0, method="weibull")
