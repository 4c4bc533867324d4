"""A table of verdicts: no sampler is wrong on a hard posterior and says that its draws can be trusted.

Wrong is a mean, or a standard deviation, .3 posterior standard deviations off. ``docs/verdicts.md`` shows it.
"""

import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from verdict_problems import PROBLEMS, SHARDED

import stradask as sd
from stradask.errors import PosteriorWarning, StradaskError

SAMPLERS = ("auto", "nuts", "slice", "split_hmc", "laplace")
COMBINERS = ("auto", "consensus", "parametric", "semiparametric")
N_SHARDS = 4
WRONG = 0.3
PAGE = Path(__file__).parents[4] / "docs" / "verdicts.md"


def outcome(hard, **options):
    """The verdict ("trusted", "care", "bad", "refused") and the error in standard deviations."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = sd.sample(hard.density, hard.log_prior, hard.data, hard.start, random_state=0, **options)
        except StradaskError:
            return "refused", 0.0
    aloud = any(issubclass(one.category, PosteriorWarning) for one in told)
    verdict = ("trusted", "care", "bad")[found.diagnostics.level]
    draws = found.draws if hard.measure is None else hard.measure(found.draws)
    errors = np.abs([(draws.mean(axis=0) - hard.mean) / hard.sd, draws.std(axis=0) / hard.sd - 1])
    return verdict + ", with a warning" * aloud, float(errors.max())


def check(hard, verdict, error):
    if hard.refused:
        assert verdict in ("refused", "bad, with a warning")
    else:
        assert error <= WRONG or "warning" in verdict, (verdict, error)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_nothing_is_wrong_in_silence(name, sampler):
    check(PROBLEMS[name], *outcome(PROBLEMS[name], sampler=sampler))


@pytest.mark.slow
@pytest.mark.parametrize("combine", COMBINERS)
@pytest.mark.parametrize("name", SHARDED)
def test_no_combination_of_shards_is_wrong_in_silence(name, combine):
    check(SHARDED[name], *outcome(SHARDED[name], n_shards=N_SHARDS, combine=combine))


@pytest.mark.parametrize("name", ["log Gamma(2)", "step", "constant along an axis"])
def test_some_of_it(name):
    check(PROBLEMS[name], *outcome(PROBLEMS[name], sampler="auto"))


@pytest.mark.parametrize("name", ["prior inside the likelihood", "mean over rows", "dependent rows"])
def test_what_is_no_sum_over_rows_is_refused(name):
    assert outcome(SHARDED[name], n_shards=N_SHARDS)[0] == "refused"


@pytest.mark.parametrize("table", ["one piece", "shards"])
def test_the_page_has_every_row_and_none_that_is_wrong_and_trusted(table):
    problems, columns = (PROBLEMS, SAMPLERS) if table == "one piece" else (SHARDED, COMBINERS)
    lines = [re.split(r" *\| *", line)[1:-1] for line in PAGE.read_text().splitlines() if line[:1] == "|"]
    head = lines.index(["posterior", *columns])
    rows = {line[0]: line[1:] for line in lines[head + 2 : head + 2 + len(problems)]}
    assert list(rows) == list(problems)
    for name, cells in rows.items():
        for cell in cells:
            verdict, error = re.fullmatch(r"(.*?)(?: \((\d+\.\d\d)\))?", cell).groups()
            check(problems[name], verdict, float(error or 0))


def _shown(verdict, error):
    return verdict if verdict == "refused" else f"{verdict} ({error:.2f})"


if __name__ == "__main__":  # writes the rows of docs/verdicts.md
    for problems, key, values, further in (
        (PROBLEMS, "sampler", SAMPLERS, {}),
        (SHARDED, "combine", COMBINERS, {"n_shards": N_SHARDS}),
    ):
        for problem, hard in problems.items():
            cells = (_shown(*outcome(hard, **{key: value}, **further)) for value in values)
            sys.stdout.write(f"| {problem} | {' | '.join(cells)} |\n")
            sys.stdout.flush()
