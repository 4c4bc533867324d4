"""The examples in docstrings: bayes."""

import pytest
from doctest_runs import modules_below, run_examples


@pytest.mark.parametrize("name", modules_below("stradask.algorithms.bayes"))
def test_examples(name):
    run_examples(name)
