"""Runs the examples in the docstrings of a package."""

import doctest
import importlib
import pkgutil

import pytest

PEERS = {"jax", "numpyro"}  # of which a benchmark's models are made; they are no dependencies


def modules_below(*packages):
    """Names of the packages and of all modules in them."""
    names = []
    for name in packages:
        package = importlib.import_module(name)
        found = pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}.")
        names += [name, *(module.name for module in found)]
    return names


def run_examples(name):
    """Run the examples of a module; the first one that fails raises with what it gave."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in PEERS:
            raise
        pytest.skip(f"{error.name} is not installed")
    runner = doctest.DebugRunner(optionflags=0)
    for test in doctest.DocTestFinder().find(module, name):
        if not test.examples:
            continue
        try:
            runner.run(test)
        except doctest.DocTestFailure as failure:
            raise AssertionError(
                f"{test.name}, line {failure.example.lineno + 1}: {failure.example.source.strip()!r} gave "
                f"{failure.got!r}, not {failure.example.want!r}"
            ) from None
        except doctest.UnexpectedException as failure:
            raise failure.exc_info[1] from None
