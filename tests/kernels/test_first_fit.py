"""What first fits compile: nothing twice, and topic models no making of arrays."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import collections, json
import numba
from numba.core import event
import numpy as np
import stradask as sd

compiled = collections.Counter()

class Listener(event.Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        kinds = tuple(str(numba.types.unliteral(kind)) for kind in event.data["args"])
        compiled[f"{function.__module__}.{function.__qualname__} {kinds}"] += 1

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
FITS
print(json.dumps(compiled))
"""
TOPICS = """
X = sd.datasets.make_lda_corpus(1200, n_features=2000, n_components=5, mean_length=100, random_state=0)[0]
for n_components, sampler in ((100, "auto"), (300, "auto"), (100, "gibbs"), (300, "gibbs"), (300, "warp")):
    sd.LatentDirichletAllocation(n_components, sampler=sampler, max_iter=10, random_state=0).fit(X)
"""
LINEAR = """
rng = np.random.default_rng(0)
X = rng.standard_normal((92, 400))
y = X[:, 0] + 0.5 * rng.standard_normal(92)
sd.Lasso(0.05).fit(X, y)
sd.SparseGLM("logistic", penalty="l1", alpha=0.02).fit(X, y > 0)
"""


def compiled_by(fits, folder):
    """How often each function was compiled for kinds of arguments, with an empty cache."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", SCRIPT.replace("FITS", fits)]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.slow  # it compiles all that "auto" takes, for rows and for lists
def test_a_first_fit_compiles_nothing_twice(tmp_path):
    compiled = compiled_by(TOPICS, tmp_path)
    # `run_tasks` has the sweep over rows of counts inlined.
    for kernel in ("gibbs_steps.run_tasks", "gibbs.sweep_sparse", "warp.word_pass", "warp.document_pass"):
        assert sum(f"kernels.lda.{kernel} " in name for name in compiled) == 1
    twice = [name for name, times in compiled.items() if times > 1 and name.startswith("stradask")]
    # A sweep draws with `exact` as a constant 0, which leaves out a division, and as it is.
    assert [name for name in twice if "gibbs._draw_next " not in name] == []
    assert [name for name in compiled if "arrayobj" in name] == []


def test_first_fits_of_small_linear_models_share_what_they_compile(tmp_path):
    compiled = compiled_by(LINEAR, tmp_path)
    assert {1} == {times for name, times in compiled.items() if name.startswith("stradask")}
    kernels = [name for name in compiled if ".minimise" in name]
    assert len(kernels) == 2  # the model's, and Newton's for the logistic loss
    assert not any("_shrunk_by_power" in name for name in compiled)  # of a penalty that is not convex
