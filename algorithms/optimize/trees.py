"""Parameters as nested dicts, lists and tuples of arrays, which the minimisers see as one vector."""

import numpy as np

from ...errors import DataError, shortened
from .space import as_numbers


class Tree:
    """The form of nested dicts, lists and tuples of arrays, and where each array lies in a flat vector.

    An array by itself is such a form, too.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.optimize.trees import Tree
    >>> tree = Tree({"w": np.zeros((2, 2)), "b": 0.0}, "x0")
    >>> tree.flat({"b": 5.0, "w": [[1.0, 2.0], [3.0, 4.0]]}, "x0").tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0]
    >>> tree.nested(np.arange(5.0))["w"].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """

    def __init__(self, like, name):
        self.size = 0
        self._form = self._laid(like, name)

    def _laid(self, node, path):
        if isinstance(node, dict):
            return {key: self._laid(child, f"{path}[{shortened(key, 40)}]") for key, child in node.items()}
        if _is_branch(node):
            return _made(node, [self._laid(child, f"{path}[{i}]") for i, child in enumerate(node)])
        shape = as_numbers(path, node).shape
        first, self.size = self.size, self.size + int(np.prod(shape))
        return _Leaf(first, self.size, shape)

    @property
    def is_plain(self):
        """Whether the form is a vector or a number, which needs no change."""
        return isinstance(self._form, _Leaf) and len(self._form.shape) < 2

    def address(self, j, name):
        """Say where number j of the flat vector is, for instance ``x0['W'][1, 2]``."""
        for leaf, _, path in self._pairs(self.nested(np.empty(self.size)), name):
            if leaf.first <= j < leaf.end:
                at = ", ".join(str(int(i)) for i in np.unravel_index(j - leaf.first, leaf.shape))
                return f"{path}[{at}]" if at else path
        raise IndexError(j)

    def flat(self, tree, name):
        """Return the numbers of a tree of this form as one vector of float64; others raise DataError."""
        x = np.empty(self.size)
        for leaf, array, path in self._pairs(tree, name):
            array = as_numbers(path, array)
            if array.shape != leaf.shape:
                raise DataError(f"{path} has the shape {array.shape}, where x0 has {leaf.shape}")
            x[leaf.first : leaf.end] = array.ravel()
        return x

    def spread(self, tree, name):
        """As `flat`, of numbers or arrays that are broadcast to the arrays of this form."""
        x = np.empty(self.size)
        for leaf, value, path in self._pairs(tree, name):
            x[leaf.first : leaf.end] = _broadcast(value, leaf.shape, path).ravel()
        return x

    def bounds(self, tree, name):
        """Return the lower and upper ends of a tree of pairs, `Bounds` of SciPy and None, as two vectors."""
        low, high = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        for leaf, pair, path in self._pairs(tree, name):
            if pair is None:
                continue
            ends = (pair.lb, pair.ub) if hasattr(pair, "lb") and hasattr(pair, "ub") else pair
            if not isinstance(ends, (tuple, list)) or len(ends) != 2:
                raise DataError(f"{path} must be None or a pair (lower, upper), got {shortened(pair)}")
            for x, end in zip((low, high), ends, strict=True):
                if end is not None:
                    x[leaf.first : leaf.end] = _broadcast(end, leaf.shape, path).ravel()
        return low, high

    def nested(self, x):
        """Return slices of a flat vector (of numpy or Dask) in this form."""
        return self._filled(self._form, x)

    def _filled(self, form, x):
        if isinstance(form, _Leaf):
            return x[form.first : form.end].reshape(form.shape)
        if isinstance(form, dict):
            return {key: self._filled(child, x) for key, child in form.items()}
        return _made(form, [self._filled(child, x) for child in form])

    def _pairs(self, tree, name):
        """Yield each leaf, what a tree has in its place, and how that is addressed."""
        waiting = [(self._form, tree, name)]
        while waiting:
            form, node, path = waiting.pop()
            if isinstance(form, _Leaf):
                yield form, node, path
            elif isinstance(form, dict):
                if not isinstance(node, dict) or set(node) != set(form):
                    what = (
                        f"the keys {shortened(list(node))}"
                        if isinstance(node, dict)
                        else f"a {type(node).__name__}"
                    )
                    raise DataError(
                        f"{path} must be a dict with the keys {shortened(list(form))} of x0, got {what}"
                    )
                waiting += [
                    (child, node[key], f"{path}[{shortened(key, 40)}]") for key, child in form.items()
                ]
            else:
                if not isinstance(node, (list, tuple)) or len(node) != len(form):
                    size = f" of {len(node)}" if isinstance(node, (list, tuple)) else ""
                    raise DataError(
                        f"{path} must be a list or tuple of {len(form)}, as in x0, got a "
                        f"{type(node).__name__}{size}"
                    )
                waiting += [(child, node[i], f"{path}[{i}]") for i, child in enumerate(form)]


class _Leaf:
    """An array of a form: its part of the flat vector, and its shape."""

    __slots__ = ("end", "first", "shape")

    def __init__(self, first, end, shape):
        self.first, self.end, self.shape = first, end, shape


def _is_branch(node):
    """Whether a list or tuple holds arrays; one of numbers, or of lists of them, is an array."""
    if not isinstance(node, (list, tuple)):
        return False
    return any(isinstance(child, (dict, np.ndarray)) or _is_branch(child) for child in node)


def _made(like, children):
    """A list, tuple or namedtuple of the type of another."""
    return type(like)(*children) if hasattr(like, "_fields") else type(like)(children)


def _broadcast(value, shape, path):
    try:
        value = as_numbers(path, value)
        return np.broadcast_to(value.reshape(()) if value.size == 1 else value, shape)
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} has the shape {np.shape(value)}, which does not fit an array of the shape {shape}"
        ) from error
