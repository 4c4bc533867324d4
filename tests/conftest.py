"""For the whole suite: the option --runslow, and a cluster in this process."""

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


@pytest.fixture
def address():
    """Address of a scheduler with two workers, all threads of this process."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        2, processes=False, threads_per_worker=1, dashboard_address=":0", protocol="tcp://"
    ) as cluster:
        yield cluster.scheduler_address
