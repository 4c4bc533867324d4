"""Worker processes of one thread each, and a matrix whose rows lie on them."""

import atexit
import logging

import numpy as np


class Workers:
    """As many worker processes as a run has threads; they end with this process."""

    def __init__(self, n_workers):
        from distributed import Client, LocalCluster

        self.n_workers = n_workers
        self.cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
        )
        self.client = Client(self.cluster)
        atexit.register(self.close)

    def spread(self, array):
        """Lay equal parts of an array on the workers, as a Dask array that is there when this returns."""
        import dask.array as da
        from distributed import wait

        rows = -(-len(array) // self.n_workers)
        lazily = da.from_array(np.ascontiguousarray(array), chunks=(rows, *array.shape[1:]))
        there = self.client.persist(lazily)
        wait(there)
        return there

    def close(self):
        """End the workers."""
        self.client.close()
        self.cluster.close()
