"""Processes that fork while a thread of theirs is in the compiler."""

import os
import subprocess
import sys

import pytest

BEGUN = """
import os, sys, threading
import stradask.kernels
import numba
from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

locks = {"llvm": ffi.lib._lock._lock, "compiler": global_compiler_lock._lock}
held, forked = threading.Event(), threading.Event()

def all_are_free():
    found = []
    def take():
        found.extend(lock.acquire(timeout=20) and lock.release() is None for lock in locks.values())
    other = threading.Thread(target=take)
    other.start()
    other.join()
    return found == [True, True]

def fork():
    child = os.fork()
    if child == 0:
        os._exit(0 if all_are_free() else 3)
    forked.set()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
HELD = """
def hold():
    with locks[sys.argv[1]]:
        held.set()
        threading.Event().wait(0.2)

threading.Thread(target=hold).start()
held.wait()
print(fork(), all_are_free())
"""
WAITING = """
stradask.kernels._PATIENCE = 0.1

def hold():
    with locks[sys.argv[1]]:
        held.set()
        forked.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(0)
forked.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), all_are_free())
"""
OWN = """
with locks[sys.argv[1]]:
    child = os.fork()
if child == 0:
    os._exit(0 if all_are_free() else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), all_are_free())
"""
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


def _said(script, lock):
    command = [sys.executable, "-c", BEGUN + script, lock]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("lock", ["llvm", "compiler"])
def test_a_child_can_compile_what_another_thread_was_about_to(lock):
    assert _said(HELD, lock) == "0 True\n"


@pytest.mark.parametrize("lock", ["llvm", "compiler"])
def test_a_thread_that_itself_waits_for_the_fork_does_not_hold_it_up_for_ever(lock):
    assert _said(WAITING, lock) == "0 True\n"


@pytest.mark.parametrize("lock", ["llvm", "compiler"])
def test_the_compilers_own_thread_forks(lock):
    assert _said(OWN, lock) == "0 True\n"
