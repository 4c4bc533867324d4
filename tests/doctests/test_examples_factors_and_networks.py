"""The examples in docstrings: factors and networks."""

import pytest
from doctest_runs import modules_below, run_examples

PACKAGES = (
    "stradask.algorithms.factorization",
    "stradask.algorithms.neural",
    "stradask.algorithms.optimize",
    "stradask.algorithms.inputs",
)


@pytest.mark.parametrize("name", modules_below(*PACKAGES))
def test_examples(name):
    run_examples(name)
