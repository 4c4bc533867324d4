"""The examples in docstrings: others."""

import pytest
from doctest_runs import modules_below, run_examples

PACKAGES = (
    "stradask.algorithms._base",
    "stradask.algorithms._persistence",
    "stradask.benchmarks",
    "stradask.cli",
    "stradask.datasets",
    "stradask.demo",
    "stradask.errors",
    "stradask.kernels",
    "stradask.registry",
    "stradask.scheduler",
)


@pytest.mark.parametrize("name", modules_below(*PACKAGES))
def test_examples(name):
    run_examples(name)
