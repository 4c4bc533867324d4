"""Processes that fork while a thread of theirs is in the compiler."""

import os
import subprocess
import sys

import pytest

HELD = """
import os, sys, threading
import stradask.kernels
import numba
from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

locks = {"llvm": ffi.lib._lock._lock, "compiler": global_compiler_lock._lock}
held = threading.Event()

def hold():
    with locks[sys.argv[1]]:
        held.set()
        threading.Event().wait(0.2)

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(0 if all(lock.acquire(timeout=20) for lock in locks.values()) else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for lock in locks.values():
    assert lock.acquire(timeout=20)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("lock", ["llvm", "compiler"])
def test_a_child_can_compile_what_another_thread_was_about_to(lock):
    done = subprocess.run([sys.executable, "-c", HELD, lock], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
