"""Intervals from draws hold a further draw as often as they say, whatever the number of draws."""

import numpy as np
import pytest

from stradask.algorithms._intervals import interval_of_draws
from stradask.errors import DataError


@pytest.mark.parametrize(
    ("n_draws", "level"), [(2, 0.3), (9, 0.8), (19, 0.9), (50, 0.9), (50, 0.5), (41, 0.87)]
)
def test_a_further_draw_lies_within_with_the_probability(n_draws, level):
    # Of uniform draws the j-th least has the mean j / (n + 1), and that is the probability below it.
    # Ends are linear in the ordered draws, so that these means in their place give the mean of the coverage.
    low, high = interval_of_draws(np.arange(1, n_draws + 1) / (n_draws + 1), level)
    assert high - low == pytest.approx(level)
    assert low == pytest.approx(1 - high)


def test_levels_that_are_no_probability_or_need_more_draws_are_refused():
    for level in (0, 1, 90, True, "0.9", None, np.nan):
        with pytest.raises(DataError, match="level must be a number above 0 and below 1"):
            interval_of_draws(np.zeros(5), level)
    with pytest.raises(DataError, match=r"level=0.9 needs 19 draws, and there are 18: draw more, or take a"):
        interval_of_draws(np.zeros(18), 0.9)
