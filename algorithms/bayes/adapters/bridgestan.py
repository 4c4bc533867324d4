"""Models written in Stan, through BridgeStan.

Stan does not tell prior from likelihood, but a program is a function of its data: with no rows at all it is
the prior, Jacobians included, and the likelihood of some rows is what they add to that.
"""

import threading
from typing import Any

import numpy as np

from ....errors import DataError, shortened
from ..models.external import SHIFTS, ExternalModel, Functions, check_named, is_same, needed, rows_of

_ONE_AT_A_TIME = threading.Lock()  # a library compiled without STAN_THREADS has one stack for derivatives


def from_bridgestan(model_lib: Any, data: Any, *, data_axis: Any = None, start: Any = None) -> ExternalModel:
    """Take a model written in Stan for `sample`.

    Parameters
    ----------
    model_lib : path-like
        What BridgeStan compiles: a shared library, or a ``.stan`` file that is compiled. On a cluster all
        workers must see it.
    data : dict
        What the program's data block declares. Arrays with as many rows as ``data[data_axis]`` are cut into
        shards.
    data_axis : str, optional
        Name of the integer that counts the rows, such as "N". The program must allow it to be 0. None takes
        the density in one piece, for programs without independent rows, such as time series and Gaussian
        processes. Transformed parameters are kept if none of them depends on the rows.
    start : array-like of shape (d,), optional
        In unconstrained parameters; zeros by default.

    Returns
    -------
    ExternalModel
        For ``sample(model, ...)``. Its parameters have Stan's names, shapes and constraints.

    Raises
    ------
    DataError
        If data_axis is no integer of the data, or the program refuses to have no rows.

    Notes
    -----
    The program with no rows enters with the power 1 / n_shards, each row with 1. Chains of one process take
    turns, as Stan's libraries are not made for several threads.

    Examples
    --------
    >>> import stradask as sd
    >>> model = sd.from_bridgestan("mean.stan", {"N": 3, "x": x}, data_axis="N")  # doctest: +SKIP
    >>> posterior = sd.sample(model, n_shards=4)  # doctest: +SKIP
    """
    check_named(data)
    if data_axis is None:
        return _in_one_piece(model_lib, data, start)
    n = data.get(data_axis)
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise DataError(
            f"data_axis={shortened(data_axis)} must name the integer of data that counts rows, got "
            f"{shortened(n)}"
        )
    cut, fixed = rows_of({name: x for name, x in data.items() if name != data_axis}, n, data_axis)
    row = tuple(x[:1] for x in cut.values())
    functions = _Stan(str(model_lib), fixed, tuple(cut), data_axis, row)
    whole = functions.model(tuple(cut.values()))
    functions.start = _start(whole, start)
    try:
        functions.compiled  # noqa: B018
    except (RuntimeError, ValueError) as error:
        raise DataError(
            f"the program cannot be without rows ({data_axis} = 0), which its prior is found by: {error}; "
            f"declare int<lower=0> {data_axis}"
        ) from error
    functions.with_transformed = _are_alike(functions.compiled[0], whole, functions.start)
    names = tuple(whole.param_unc_names())
    model = ExternalModel(functions, tuple(cut.values()), functions.start, names, functions.variables())
    functions.compiled[1].clear()  # the parts on which the likelihood was examined
    return model


def _start(program, start):
    start = np.zeros(program.param_unc_num()) if start is None else np.array(start, dtype=float)
    if start.shape != (program.param_unc_num(),):
        raise DataError(f"start must have {program.param_unc_num()} entries, got {start.shape}")
    return start


def _are_alike(one, other, start):
    """Whether transformed parameters are the same without rows and with all of them, near the start."""
    for shift in SHIFTS:
        try:
            few, every = (program.param_constrain(start + shift, include_tp=True) for program in (one, other))
        except RuntimeError:
            return False
        if not is_same(few, every):
            return False
    return True


def _in_one_piece(model_lib, data, start):
    """Take the density of a program with all its data."""
    functions = _Stan(str(model_lib), dict(data), (), None, ())
    whole = functions.compiled[0]
    functions.start = _start(whole, start)
    return ExternalModel(
        functions, (), functions.start, tuple(whole.param_unc_names()), functions.variables()
    )


class _Stan(Functions):
    """See `Functions`. Without an axis the program is the whole density."""

    def __init__(self, library, fixed, cut, axis, row):
        self.library, self.fixed, self.cut, self.axis, self.row = library, fixed, cut, axis, row
        self.start = np.zeros(0)
        self.with_transformed = axis is None

    def model(self, rows):
        """Return the program with some rows as its data."""
        bridgestan = needed("bridgestan", "from_bridgestan")
        data = self.fixed | dict(zip(self.cut, rows, strict=True))
        data |= {} if self.axis is None else {self.axis: len(rows[0])}
        return bridgestan.StanModel(self.library, data, warn=False)

    def compile(self):
        """The program without rows, and a place for those with some: by the identity of their arrays."""
        return self.model(tuple(x[:0] for x in self.row)), {}

    def _with(self, rows):
        """The program with a shard's rows; they are kept, so that no others can have their identity."""
        _, known = self.compiled
        if id(rows) not in known:
            known[id(rows)] = rows, self.model(rows)
        return known[id(rows)][1]

    def likelihood(self, q, data):
        """See `Functions`."""
        with _ONE_AT_A_TIME:
            if self.axis is None:
                return _density(self.compiled[0], q)
            value, gradient = _density(self._with(data), q)
            none, slope = _density(self.compiled[0], q)
        return value - none, gradient - slope

    def prior(self, q):
        """See `Functions`."""
        with _ONE_AT_A_TIME:
            return _density(self.compiled[0], q)

    def _order(self):
        """For each parameter its shape and the places of its entries: Stan counts columns first."""
        places: dict[str, list] = {}
        for place, name in enumerate(self.compiled[0].param_names(**self._kept)):
            base, *index = name.split(".")
            places.setdefault(base, []).append((tuple(int(i) - 1 for i in index), place))
        return {
            name: (tuple(1 + np.max([i for i, _ in some], axis=0)) if some[0][0] else (), sorted(some))
            for name, some in places.items()
        }

    def variables(self):
        """Names and shapes of the parameters."""
        return {name: tuple(int(n) for n in shape) for name, (shape, _) in self._order().items()}

    def constrain(self, Q):
        """See `Functions`."""
        order = [place for _, some in self._order().values() for _, place in some]
        with _ONE_AT_A_TIME:
            return np.array([self.compiled[0].param_constrain(q, **self._kept)[order] for q in Q])

    @property
    def _kept(self):
        """Options by which transformed parameters are among the values."""
        return {"include_tp": True} if self.with_transformed else {}


def _density(model, q):
    """Density and gradient; where Stan refuses the parameters the density is zero."""
    try:
        return model.log_density_gradient(np.ascontiguousarray(q))
    except RuntimeError:
        return np.nan, np.full(len(q), np.nan)
