"""Kernels with a single signature, compiled at their first call instead of at import."""

import functools

import numba as nb
from numba.core.compiler_lock import global_compiler_lock


def njit(signature, **options):
    """Compile for this signature alone, as ``numba.njit(signature, **options)``, but at the first call.

    Compiled code cannot call such a function.
    """

    def decorate(function):
        compiled = nb.njit(**options)(function)

        @functools.cache
        def ready():
            with global_compiler_lock:  # which forks wait for
                if not compiled.signatures:  # another thread may have been first
                    compiled.compile(signature)
                    compiled.disable_compile()  # so that other arguments are converted, or are an error
            return compiled

        @functools.wraps(function)
        def call(*arguments):
            return ready()(*arguments)

        call.compiled = compiled
        return call

    return decorate
