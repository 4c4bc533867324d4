"""What the first fit of a topic model compiles: nothing twice, and no making of arrays."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import collections, json
import numba
from numba.core import event
import stradask as sd
from stradask.datasets import make_lda_corpus

compiled = collections.Counter()

class Listener(event.Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        kinds = tuple(str(numba.types.unliteral(kind)) for kind in event.data["args"])
        compiled[f"{function.__module__}.{function.__qualname__} {kinds}"] += 1

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
X = make_lda_corpus(1200, n_features=2000, n_components=5, mean_length=100, random_state=0)[0]
for n_components, sampler in ((100, "auto"), (300, "auto"), (100, "gibbs"), (300, "gibbs"), (300, "warp")):
    sd.LatentDirichletAllocation(n_components, sampler=sampler, max_iter=10, random_state=0).fit(X)
print(json.dumps(compiled))
"""


@pytest.mark.slow  # it compiles all that "auto" takes, for rows and for lists
def test_a_first_fit_compiles_nothing_twice(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True
    )
    compiled = json.loads(done.stdout)
    # `run_tasks` has the sweep over rows of counts inlined.
    for kernel in ("gibbs_steps.run_tasks", "gibbs.sweep_sparse", "warp.word_pass", "warp.document_pass"):
        assert sum(f"kernels.lda.{kernel} " in name for name in compiled) == 1
    twice = [name for name, times in compiled.items() if times > 1 and name.startswith("stradask")]
    # A sweep draws with `exact` as a constant 0, which leaves out a division, and as it is.
    assert [name for name in twice if "gibbs._draw_next " not in name] == []
    assert [name for name in compiled if "arrayobj" in name] == []
