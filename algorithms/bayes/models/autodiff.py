"""A user's function of PyTorch's tensors or JAX's arrays, with its derivatives.

The function gets parameters and data of its library, in double precision, and returns one number of it. The
library is imported on use.
"""

import numpy as np
from dask.base import normalize_token

from ....errors import DataError, shortened
from .external import needed
from .fingerprint import fingerprint

LIBRARIES = ("torch", "jax")


def differentiated(functions, autodiff):
    """Return functions by name, each with its derivatives; raise a DataError for what cannot have any."""
    if autodiff is None:
        return functions
    if not isinstance(autodiff, str) or autodiff not in LIBRARIES:
        raise DataError(f"autodiff must be None, 'torch' or 'jax', got {shortened(autodiff)}")
    needed(autodiff, f"autodiff={autodiff!r}")
    for name, function in functions.items():
        if function is not None and (not callable(function) or hasattr(function, "py_func")):
            raise DataError(
                f"{name} must be a function of {autodiff}'s tensors with autodiff={autodiff!r}, got "
                f"{shortened(function, 60)}: those of numba add their derivatives to g"
            )
    return {name: None if one is None else Autodiff(name, one, autodiff) for name, one in functions.items()}


def own_data(function):
    """Return a function for one shard: its data are turned into tensors once."""
    if not isinstance(function, Autodiff):
        return function
    return Autodiff(function.name, function.function, function.library)


class Autodiff:
    """Calls ``function(p, *data)`` with tensors; returns its value and derivatives as NumPy has them.

    `p` is a vector, or a named tuple, whose derivatives are a dict by name.
    """

    def __init__(self, name, function, library):
        self.name, self.function, self.library = name, function, library
        self._seen: tuple = ((), ())  # data, and what was made of them

    def __call__(self, p, *data):
        """Value and derivatives."""
        seen, made = self._seen
        if len(data) != len(seen) or any(one is not other for one, other in zip(data, seen, strict=True)):
            made = tuple(map(self._own, data))
            self._seen = data, made  # at once, as other threads may read it
        value, slopes = (self._by_torch if self.library == "torch" else self._by_jax)(p, made)
        names = getattr(p, "_fields", None)
        return value, slopes[0] if names is None else dict(zip(names, slopes, strict=True))

    def _own(self, data):
        """Arrays of numbers as the library has them; other data as they are."""
        if isinstance(data, tuple):
            return tuple(map(self._own, data))
        array = np.asarray(data)
        if array.dtype.kind not in "biuf":
            return data
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        if self.library == "torch":
            import torch

            return torch.tensor(array)
        import jax.numpy as jnp

        from ..adapters.numpyro import double_precision

        with double_precision():
            return jnp.asarray(array)

    def _by_torch(self, p, data):
        import torch

        parts = list(p) if isinstance(p, tuple) else [p]
        leaves = [torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in parts]
        value = self.function(type(p)(*leaves) if isinstance(p, tuple) else leaves[0], *data)
        if not isinstance(value, torch.Tensor):
            raise DataError(
                f"{self.name} must return a tensor of PyTorch, through which derivatives go, got a "
                f"{type(value).__name__}: leave out .item() and float()"
            )
        self._check(value.shape, str(value.dtype).removeprefix("torch."))
        if not value.requires_grad:  # it depends on no parameter
            return float(value.item()), [np.zeros(leaf.shape) for leaf in leaves]
        slopes = torch.autograd.grad(value.reshape(()), leaves, allow_unused=True)
        pairs = zip(slopes, leaves, strict=True)
        made = [np.zeros(leaf.shape) if slope is None else slope.numpy() for slope, leaf in pairs]
        return float(value.item()), made

    def _by_jax(self, p, data):
        import jax

        from ..adapters.numpyro import double_precision

        with double_precision():
            if "_compiled" not in vars(self):
                self._compiled = jax.jit(jax.value_and_grad(self.function))
            value, slopes = self._compiled(p, *data)
            self._check(np.shape(value), str(np.asarray(value).dtype))
            slopes = slopes if isinstance(p, tuple) else (slopes,)
            return float(value), [np.asarray(slope, dtype=np.float64) for slope in slopes]

    def _check(self, shape, dtype):
        if int(np.prod(shape)) != 1:
            raise DataError(f"{self.name} must return one number, got the shape {tuple(shape)}: take the sum")
        if dtype != "float64":
            raise DataError(
                f"{self.name} returns {dtype}, whose rounding errors chains follow: parameters and data are "
                "float64, so make what the function adds to them float64, too"
            )

    def __getstate__(self):
        return {"name": self.name, "function": self.function, "library": self.library, "_seen": ((), ())}

    def __dask_tokenize__(self):
        """Identify the function by its code and all that it refers to."""
        return normalize_token((self.library, fingerprint(self.function)))
