"""The option --runslow, for the whole suite."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="run also the tests marked slow")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--runslow") or "slow" in config.getoption("markexpr"):
        return
    skip = pytest.mark.skip(reason="slow: runs with --runslow or -m slow")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)
