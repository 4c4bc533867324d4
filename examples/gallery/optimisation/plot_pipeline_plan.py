"""
Plan a pipeline from a profile
==============================

`plan_pipeline` cuts the layers of a network over workers by a profile of their times. The table has
the other plans that were considered.
"""

import matplotlib.pyplot as plt

from stradask.scheduler import plan_pipeline
from stradask.scheduler.planning import Link, Profile

profile = Profile(
    forward=[[0.006, 0.040], [0.005, 0.034], [0.004, 0.030], [0.003, 0.020]],
    backward=[[0.012, 0.081], [0.010, 0.070], [0.008, 0.060], [0.006, 0.041]],
    rows=[32, 256],  # seconds are for these numbers of rows
    activation_bytes=[65536, 32768, 16384, 4000],  # a row
    parameter_bytes=[2e6, 5e6, 20e6, 400e6],
    update=[0.001, 0.001, 0.002, 0.03],
    names=["conv 1", "conv 2", "conv 3", "dense"],
)
plan = plan_pipeline(profile, 2, Link(latency=1e-3, bandwidth=1.25e9), batch_size=256)
print(plan.table())

# %%
# A slow network favours the pipeline, a fast one data parallelism.
bandwidths = [10.0**k for k in range(8, 12)]
plans = [plan_pipeline(profile, 4, Link(1e-4, bandwidth), batch_size=256) for bandwidth in bandwidths]
plt.semilogx(bandwidths, [1e3 * plan.seconds for plan in plans], "o-")
for bandwidth, plan in zip(bandwidths, plans, strict=True):
    plt.annotate(plan.kind, (bandwidth, 1e3 * plan.seconds), xytext=(5, 5), textcoords="offset points")
plt.margins(x=0.15)
plt.xlabel("bytes a second")
plt.ylabel("predicted ms a step")
plt.show()
