"""A worker's process ends without a search for cycles; one of the user's is left as it is."""

import subprocess
import sys

import pytest

pytest.importorskip("distributed")

FIT = """
import gc, sys
import distributed
import stradask as sd

found = sys.argv[1]

def look():
    "Write how much is frozen at the end: what is registered first is called last."
    import atexit, gc
    def write():
        with open(found, "w") as file:
            print(gc.get_freeze_count(), file=file)
    atexit.register(write)

if __name__ == "__main__":
    options = {"n_workers": 1, "processes": len(sys.argv) == 2, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        client.run(look)
        sd.Ridge(engine="dask").fit([[0.0], [1.0], [3.0]], [0.0, 1.0, 2.0])
"""


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["in this process"]])
def test_a_process_of_a_worker_ends_without_the_garbage_collector(more, tmp_path):
    script, found = tmp_path / "fit.py", tmp_path / "frozen"
    script.write_text(FIT)
    subprocess.run([sys.executable, script, found, *more], check=True, timeout=120, capture_output=True)
    assert (int(found.read_text()) > 10_000) == (not more)
