"""A table of verdicts: no sampler is wrong on a hard posterior and says that its draws can be trusted.

Wrong is a mean, or a standard deviation, .3 posterior standard deviations off. ``docs/verdicts.md`` shows it.
"""

import sys
import warnings

import numpy as np
import pytest
from verdict_problems import PROBLEMS

import stradask as sd
from stradask.errors import PosteriorWarning, StradaskError

SAMPLERS = ("auto", "nuts", "split_hmc", "laplace")
WRONG = 0.3


def outcome(name, sampler):
    """The verdict ("trusted", "care", "bad", "refused") and the error in standard deviations."""
    hard = PROBLEMS[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = sd.sample(hard.density, None, None, hard.start, sampler=sampler, random_state=0)
        except StradaskError:
            return "refused", 0.0
    aloud = any(issubclass(one.category, PosteriorWarning) for one in told)
    verdict = ("trusted", "care", "bad")[found.diagnostics.level]
    errors = np.abs([(found.draws.mean(axis=0) - hard.mean) / hard.sd, found.draws.std(axis=0) / hard.sd - 1])
    return verdict + ", with a warning" * aloud, float(errors.max())


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_nothing_is_wrong_in_silence(name, sampler):
    verdict, error = outcome(name, sampler)
    assert error <= WRONG or "warning" in verdict, (verdict, error)


@pytest.mark.parametrize("name", ["log Gamma(2)", "step"])
def test_some_of_it(name):
    verdict, error = outcome(name, "auto")
    assert error <= WRONG or "warning" in verdict, (verdict, error)


if __name__ == "__main__":  # writes the rows of docs/verdicts.md
    for problem in PROBLEMS:
        cells = ("{} ({:.2f})".format(*outcome(problem, sampler)) for sampler in SAMPLERS)
        sys.stdout.write(f"| {problem} | {' | '.join(cells)} |\n")
        sys.stdout.flush()
