"""The examples in docstrings: topics."""

import pytest
from doctest_runs import modules_below, run_examples


@pytest.mark.parametrize("name", modules_below("stradask.algorithms.topics"))
def test_examples(name):
    run_examples(name)
