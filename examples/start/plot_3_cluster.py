"""
The same fit on a Dask cluster
==============================

`engine="dask"` runs a fit on the workers of the current client. The bits of the result do not depend on
the number of workers.
"""

import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster

import stradask as sd

# %%
# Two workers in this process stand for a cluster. `Client("tcp://scheduler:8786")` reaches a real one.
cluster = LocalCluster(
    n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, silence_logs=50
)
client = Client(cluster)

# %%
# Topics
# ------
# The documents are dealt to the workers. With names of files in place of `X`, workers read them.
X, topics, _ = sd.datasets.make_lda_corpus(2000, 500, 10, random_state=0)
remote = sd.LatentDirichletAllocation(10, max_iter=30, engine="dask", random_state=0).fit(X)
local = sd.LatentDirichletAllocation(10, max_iter=30, random_state=0).fit(X)
print("equal bits:", bool((remote.components_ == local.components_).all()))

# %%
# Rows that lie on the workers
# ----------------------------
# A Dask array stays where it is. Only sums of gradients and Hessians travel.
rows = da.random.default_rng(0).standard_normal((100_000, 20), chunks=(25_000, 20))
target = (rows[:, :3].sum(axis=1) > 0).astype(int)
model = sd.LogisticRegression(engine="dask").fit(rows, target)
print("coefficients", np.round(model.coef_[0, :5], 2))

# %%
# A fit that loses a worker goes on with those that are left: see `the guide <../../distributed.html>`_.
client.close()
cluster.close()
