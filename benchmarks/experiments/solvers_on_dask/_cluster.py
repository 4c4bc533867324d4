"""Worker processes of one thread each, and a matrix whose rows lie on them."""

import atexit
import logging

import numpy as np


class Workers:
    """As many worker processes as a run has threads; they end with this process."""

    def __init__(self, n_workers):
        from distributed import Client, LocalCluster

        self.cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
        )
        self.client = Client(self.cluster)
        atexit.register(self.close)

    def spread(self, array):
        """Lay equal parts of an array on the workers, as if they had read them; return one Dask array."""
        import dask.array as da
        from distributed import wait

        addresses = sorted(self.client.scheduler_info(n_workers=-1)["workers"])
        parts = np.array_split(np.ascontiguousarray(array), len(addresses))
        there = []
        for part, address in zip(parts, addresses, strict=True):
            sent = self.client.scatter(part, [address])
            there.append(self.client.submit(np.copy, sent, workers=[address]))  # at an address of its own
        wait(there)
        return da.concatenate(
            [
                da.from_delayed(future, part.shape, part.dtype)
                for future, part in zip(there, parts, strict=True)
            ]
        )

    def close(self):
        """End the workers."""
        self.client.close()
        self.cluster.close()
