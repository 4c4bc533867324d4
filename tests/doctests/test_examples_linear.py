"""The examples in docstrings: linear."""

import pytest
from doctest_runs import modules_below, run_examples


@pytest.mark.parametrize("name", modules_below("stradask.algorithms.linear"))
def test_examples(name):
    run_examples(name)
