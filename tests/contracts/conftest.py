"""The cluster of the contracts: one for all tests of a file."""

import pytest


@pytest.fixture(scope="module")
def client():
    """A client, not the current one, of two workers, all threads of this process."""
    distributed = pytest.importorskip("distributed")
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "protocol": "tcp://"}
    with (
        distributed.LocalCluster(n_workers=2, processes=False, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client
