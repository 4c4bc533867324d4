"""Where no cache folder can be written, kernels still work, with one warning."""

import os
import subprocess
import sys

SCRIPT = """
import tempfile, warnings
import numba.core.caching as caching

ensure = caching._CacheLocator.ensure_cache_path

def refuse(self):
    if not self.get_cache_path().startswith(tempfile.gettempdir()):
        raise OSError("read-only file system")
    ensure(self)

caching._CacheLocator.ensure_cache_path = refuse
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    from stradask.kernels.random import fill_uniform
    import stradask.kernels.vector
out = np.empty(8, np.float32)
fill_uniform(out, 0, np.uint64(1), 2, 3, 4)
print(len([w for w in caught if "NUMBA_CACHE_DIR" in str(w.message)]), 0 <= out.min() < out.max() < 1)
"""


def test_kernels_work_where_nothing_can_be_written(tmp_path):
    elsewhere = {**os.environ, "TMPDIR": str(tmp_path)}  # the package itself may lie in the usual one
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=elsewhere, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["1", "True"], done.stderr
