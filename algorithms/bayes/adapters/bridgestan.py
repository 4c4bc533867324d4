"""Models written in Stan, through BridgeStan.

Stan does not tell prior from likelihood, but a program is a function of its data: with no rows at all it is
the prior, Jacobians included, and the likelihood of some rows is what they add to that.
"""

import os
from typing import Any

import numpy as np

from ....errors import DataError, StradaskError, shortened
from ....kernels.bayes.stan import stan
from ..models.density_check import check_density
from ..models.external import SHIFTS, ExternalModel, Functions, check_named, is_same, needed, rows_of
from .stan_density import TURN, StanDensity, has_threads

_SHOWN = 600  # letters of a compiler's message, its end


def from_bridgestan(model_lib: Any, data: Any, *, data_axis: Any = None, start: Any = None) -> ExternalModel:
    """Take a model written in Stan for `sample`.

    Parameters
    ----------
    model_lib : path-like
        What BridgeStan compiles: a shared library; or a ``.stan`` file, which is compiled here, for several
        threads, into a library next to it. That needs a C++ compiler, make and BridgeStan's source: the
        folder that the environment variable BRIDGESTAN names, or else BridgeStan downloads it. On a cluster
        all workers must see the library.
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
        If data_axis is no integer of the data, or the program refuses to have no rows, or its data.
    StradaskError
        If a ``.stan`` file cannot be compiled: says what is missing.

    Notes
    -----
    The program with no rows enters with the power 1 / n_shards, each row with 1. The compiled sampler calls
    the library directly: a gradient costs what it costs Stan, and chains are on several threads. Libraries
    that were compiled without STAN_THREADS let one thread compute at a time. Points that Stan rejects have no
    density: they are counted, and the diagnostics quote the first message.

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
    functions = _Stan(_library(model_lib), fixed, tuple(cut), data_axis, row)
    whole = functions.program(tuple(cut.values()))
    functions.start = _start(whole, start)
    try:
        functions.compiled  # noqa: B018
    except DataError as error:
        raise DataError(
            f"the program cannot be without rows ({data_axis} = 0), which its prior is found by: {error}; "
            f"declare int<lower=0> {data_axis}"
        ) from error
    functions.with_transformed = functions.alone(_are_alike, functions.compiled[0], whole, functions.start)
    names = tuple(whole.param_unc_names())
    model = ExternalModel(functions, tuple(cut.values()), functions.start, names, functions.variables())
    functions.compiled[1].clear()  # the parts on which the likelihood was examined
    return model


def _library(model_lib):
    """Path of the shared library; of a ``.stan`` file after compiling it for several threads."""
    path = os.fspath(model_lib)
    bridgestan = needed("bridgestan", "from_bridgestan")
    if not path.endswith(".stan"):
        return path
    if not os.path.exists(path):
        raise DataError(f"model_lib: there is no file {path}")
    try:
        return str(bridgestan.compile_model(path, make_args=["STAN_THREADS=True"]))
    except ValueError as error:  # of the source's folder
        raise StradaskError(
            f"{path} cannot be compiled, as BridgeStan's source is missing: {error}. Unpack the archive "
            f"bridgestan-{bridgestan.__version__}.tar.gz of its releases, and let the environment variable "
            "BRIDGESTAN name the folder; or compile the program elsewhere, and give the shared library"
        ) from error
    except OSError as error:
        raise StradaskError(
            f"{path} cannot be compiled: {error}. It takes make and a C++ compiler; or compile the program "
            "elsewhere, and give the shared library"
        ) from error
    except RuntimeError as error:
        raise StradaskError(f"{path} does not compile: ...{str(error).strip()[-_SHOWN:]}") from error


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
    functions = _Stan(_library(model_lib), dict(data), (), None, ())
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

    def program(self, rows):
        """Return the program with some rows as its data."""
        bridgestan = needed("bridgestan", "from_bridgestan")
        data = self.fixed | dict(zip(self.cut, rows, strict=True))
        data |= {} if self.axis is None else {self.axis: len(rows[0])}
        try:
            return bridgestan.StanModel(self.library, data, warn=False)
        except RuntimeError as error:
            raise DataError(f"the program refuses its data: {error}") from error

    def compile(self):
        """The program without rows, and a place for those with some: by the identity of their arrays."""
        return self.program(tuple(x[:0] for x in self.row)), {}

    def _with(self, rows):
        """The program with a shard's rows; they are kept, so that no others can have their identity."""
        _, known = self.compiled
        if id(rows) not in known:
            known[id(rows)] = rows, self.program(rows)
        return known[id(rows)][1]

    def programs(self, rows):
        """Return the program with some rows, and that without any, None where there is no axis."""
        none, _ = self.compiled
        return (none, None) if self.axis is None else (self.program(rows), none)

    def model_of(self, log_likelihood, log_prior, rows, start, *, power, names):
        """See `Functions`."""
        made = StanDensity(
            stan, np.array([power]), np.zeros(0, np.int64), names, start, functions=self, rows=rows
        )
        return check_density(made)

    def alone(self, function, *arguments):
        """Call a function; no other thread is in the library, where it has one stack for all of them."""
        if has_threads(self.compiled[0]):
            return function(*arguments)
        return TURN.call(function, *arguments)

    def likelihood(self, q, data):
        """See `Functions`."""
        if self.axis is None:
            return self.prior(q)
        value, gradient = self.alone(_density, self._with(data), q)
        none, slope = self.prior(q)
        return value - none, gradient - slope

    def prior(self, q):
        """See `Functions`."""
        return self.alone(_density, self.compiled[0], q)

    def whole(self, data):
        """See `Functions`."""
        program = self.compiled[0] if self.axis is None else self._with(data)
        return lambda q: self.alone(_density, program, q)[0]

    @staticmethod
    def _order(names):
        """For each variable its shape and the places of its entries: Stan counts columns first."""
        places: dict[str, list] = {}
        for place, name in enumerate(names):
            base, *index = name.split(".")
            places.setdefault(base, []).append((tuple(int(i) - 1 for i in index), place))
        return {
            name: (tuple(1 + np.max([i for i, _ in some], axis=0)) if some[0][0] else (), sorted(some))
            for name, some in places.items()
        }

    def variables(self):
        """Names and shapes of the parameters."""
        order = self._order(self.compiled[0].param_names(**self._kept))
        return {name: tuple(int(n) for n in shape) for name, (shape, _) in order.items()}

    def constrain(self, Q):
        """See `Functions`."""
        parts = self._order(self.compiled[0].param_names(**self._kept)).values()
        order = [place for _, some in parts for _, place in some]
        return self.alone(
            lambda: np.array([self.compiled[0].param_constrain(q, **self._kept)[order] for q in Q])
        )

    def _free(self, values):
        """Unconstrained parameters (draws, d) of draws by name."""
        program = self.compiled[0]
        order = self._order(program.param_names())
        n = len(next(iter(values.values())))
        inside = np.empty((n, program.param_num()))
        for name, (_, some) in order.items():
            inside[:, [place for _, place in some]] = np.reshape(values[name], (n, -1))
        return self.alone(lambda: np.array([program.param_unconstrain(theta) for theta in inside]))

    def _generated(self, values, data, seed, wanted):
        """Generated quantities by name, drawn with all rows; `wanted` says of a name whether it is."""
        program = self.compiled[0] if self.axis is None else self._with(data)
        plain = set(self._order(program.param_names(include_tp=True)))
        order = self._order(program.param_names(include_tp=True, include_gq=True))
        chosen = {name: own for name, own in order.items() if name not in plain and wanted(name)}
        if not chosen:
            return {}
        rng = program.new_rng(seed)
        options = {"include_tp": True, "include_gq": True, "rng": rng}
        points = self._free(values)
        made = self.alone(lambda: np.array([program.param_constrain(q, **options) for q in points]))
        return {
            name: made[:, [place for _, place in some]].reshape(len(made), *map(int, shape))
            for name, (shape, some) in chosen.items()
        }

    def pointwise(self, values, data):
        """See `Functions`: the generated quantity ``log_lik``, else what each row adds to the program."""
        found = self._generated(values, data, 0, lambda name: name == "log_lik")
        if found:
            return found
        if self.axis is None:
            raise StradaskError(
                "the program does not say the log-likelihood of its observations: let its generated "
                "quantities have a log_lik, or give data_axis"
            )
        points, out = self._free(values), []
        none = self.compiled[0]

        def added(row):
            return [row.log_density(q, propto=False) - none.log_density(q, propto=False) for q in points]

        for i in range(len(data[0])):
            out.append(self.alone(added, self.program(tuple(x[i : i + 1] for x in data))))
        return {"log_lik": np.array(out).T}

    def predictions(self, values, data, seed):
        """See `Functions`: the generated quantities."""
        found = self._generated(values, data, seed, lambda name: name != "log_lik")
        if not found:
            raise StradaskError(
                "the program draws no new data: let its generated quantities draw them, or give predictive a "
                "function (values, rng)"
            )
        return found

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
