"""Machine code that is kept goes when a file that it has code of changes, as in an upgrade of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stradask.kernels

INNER = """
import numba as nb

@nb.njit(inline="always")
def factor():
    return {factor}
"""
OUTER = """
import numba as nb
from .middle import tripled

@nb.njit(cache=True)
def kernel():
    return tripled()
"""
MIDDLE = """
import numba as nb
{imported}

@nb.njit(cache=True)
def tripled():
    return 3 * {factor}
"""
IMPORTS = {
    "from .inner import factor": "factor()",
    "from . import (  # noqa\n    inner,\n)": "inner.factor()",
}


def _answer(root, first="import package"):
    """What the kernel returns in a process of its own, and how often it was read from the disk."""
    script = (
        f"{first}; from package.outer import kernel; print(kernel(), sum(kernel.stats.cache_hits.values()))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-Bc", script],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr
    return [int(number) for number in done.stdout.split()]


@pytest.mark.parametrize(
    "imported", [pytest.param(text, marks=[pytest.mark.slow] if "(" in text else []) for text in IMPORTS]
)
def test_code_of_a_file_goes_with_the_files_that_it_imports(tmp_path, imported):
    folder = tmp_path / "package"
    folder.mkdir()
    shutil.copy(Path(stradask.kernels.__file__), folder)
    (folder / "outer.py").write_text(OUTER)
    (folder / "middle.py").write_text(MIDDLE.format(imported=imported, factor=IMPORTS[imported]))
    (folder / "inner.py").write_text(INNER.format(factor=5))
    assert _answer(tmp_path) == [15, 0]
    assert _answer(tmp_path, "import numba") == [15, 1]
    before = os.stat(folder / "inner.py")
    (folder / "inner.py").write_text(INNER.format(factor=7))
    os.utime(folder / "inner.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert _answer(tmp_path) == [21, 0]
