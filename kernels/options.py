"""Options that compiled functions share.

A first fit waits for the compiler, so only what is called is compiled: no wrapper for calls from C, and
for functions that only compiled code calls (`INNER`) none for Python. Kernels that get all arrays from their
caller (`BORROWS`) compile no counting of references, and no making of arrays, anew for each type. But arrays
that a kernel makes itself are known not to overlap others: loops over rows of 50 numbers, which add to such a
one, took 1.15 to 1.25 times as long with one of the caller's (`linear.glm_dense`).
"""

from typing import Any

KERNEL: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "no_cfunc_wrapper": True}
INNER: dict[str, Any] = {"no_cpython_wrapper": True}
BARE: dict[str, Any] = INNER | {"no_cfunc_wrapper": True}  # for those that are made for a user's function
BORROWS: dict[str, Any] = {"_nrt": False}  # for functions that neither make nor return an array
