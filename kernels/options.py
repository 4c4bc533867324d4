"""Options that compiled functions share.

A first fit waits for the compiler, so nothing is compiled that nobody calls: no wrapper for calls from C, and
for functions that only compiled code calls (`INNER`) none for Python. Loops that get their arrays from their
caller (`BORROWS`) count no references to them: without, they take less time to compile, and to run.
"""

from typing import Any

KERNEL: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
INNER: dict[str, Any] = {"no_cpython_wrapper": True}
BORROWS: dict[str, Any] = {"_nrt": False}  # for functions that neither make nor return an array
