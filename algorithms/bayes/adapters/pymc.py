"""Models written in PyMC.

What has rows must be ``pm.Data`` along the data's dimension. The likelihood is every term of the model's log
density that depends on such data; the others, with the Jacobians of constrained variables, are the prior.
"""

import threading
from typing import Any

import numpy as np

from ....errors import DataError, in_brief, shortened
from ....kernels.bayes.callback import callback
from ..models.density_check import check_density
from ..models.external import ExternalModel, Functions, flat_names, needed
from .pymc_density import PyTensorDensity, compiled_density

_TURN = threading.Lock()  # functions of PyTensor keep their arguments: two threads would mix them


def from_pymc(model: Any, *, data_axis: Any = None, backend: Any = None) -> ExternalModel:
    """Take a model written in PyMC for `sample`.

    Parameters
    ----------
    model : pymc.Model
        All its arrays with rows, observed ones too, as ``pm.Data(name, values, dims=(data_axis, ...))``.
    data_axis : str, optional
        Name of their first dimension. None takes the density in one piece, for models without independent
        rows, such as time series and Gaussian processes. Deterministic variables are kept if they depend
        on no data along the axis.
    backend : "numba", optional
        Who compiles density and gradient. "numba" is called by the compiled sampler without Python and the
        GIL, a few times faster for small models, and compiles for 4 to 30 seconds first: for long runs. By
        default PyTensor's own mode, called through Python.

    Returns
    -------
    ExternalModel
        For ``sample(model, ...)``. Its parameters have PyMC's names, shapes and constraints; chains begin
        near the model's initial point.

    Raises
    ------
    DataError
        If no data have that dimension, a parameter is discrete or depends on rows, or the log density does;
        if backend is another word, or numba cannot compile the model.

    Notes
    -----
    Terms that depend on no row enter with the power 1 / n_shards.

    Examples
    --------
    >>> import stradask as sd
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     x = pm.Data("x_seen", values, dims="rows")
    ...     mean = pm.Normal("mean", 0, 10)
    ...     pm.Normal("x", mean, 1, observed=x)
    >>> posterior = sd.sample(sd.from_pymc(model, data_axis="rows"), n_shards=4)  # doctest: +SKIP
    """
    if not isinstance(model, needed("pymc", "from_pymc").Model):
        raise DataError(f"model must be a pymc.Model, got a {type(model).__name__}")
    if backend not in (None, "numba"):
        raise DataError(f'backend must be None or "numba", got {shortened(backend)}')
    dims = model.named_vars_to_dims
    cut = {v.name: v.get_value() for v in model.data_vars if (dims.get(v.name) or (None,))[0] == data_axis}
    if data_axis is None:
        cut = {}
    elif not cut:
        known = sorted({dim for some in dims.values() for dim in some if dim is not None})
        raise DataError(
            f"data_axis={shortened(data_axis)}: no pm.Data of the model has it as its first dimension; the "
            f"model's dimensions are {known}"
        )
    if model.discrete_value_vars:
        name = model.values_to_rvs[model.discrete_value_vars[0]].name
        raise DataError(
            f"the parameter {shortened(name)} is discrete: sum it out, as there is no gradient in it"
        )
    point = model.initial_point()
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    shapes = {value.name: np.shape(point[value.name]) for value in values}
    start = np.concatenate([np.ravel(point[name]) for name in shapes]).astype(float)
    kind = _PyMC if backend is None else _Numba
    functions = kind(model, tuple(cut), point, tuple(x[:1] for x in cut.values()), start)
    shown = [variable.name for variable in functions.shown]
    sizes = functions.compiled[-1](start)
    variables = {name: np.shape(value) for name, value in zip(shown, sizes, strict=True)}
    return ExternalModel(functions, tuple(cut.values()), start, flat_names(shapes), variables)


class _PyMC(Functions):
    """See `Functions`."""

    def __init__(self, model, cut, point, row, start):
        self.model, self.cut, self.point, self.row, self.start = model, cut, point, row, start

    @property
    def shown(self):
        """Variables that draws show."""
        data = [self.model[name] for name in self.cut]
        kept = [one for one in self.model.deterministics if not data or not self._depends(one, data)]
        return [*self.model.free_RVs, *kept]

    def compile(self):
        """Likelihood, prior, whether there is a prior, and values: functions made by PyTensor."""
        import pytensor
        import pytensor.tensor as pt
        from pymc.pytensorf import join_nonshared_inputs

        model = self.model
        data = [model[name] for name in self.cut]
        terms: dict[bool, list] = {True: [], False: []}
        for variable in [*model.basic_RVs, *model.potentials]:
            term = model.logp(vars=[variable])
            depends = self._depends(term, data) if data else True
            if data and depends and variable in model.free_RVs:
                raise DataError(
                    f"the parameter {shortened(variable.name)} depends on rows of the data: each shard "
                    "would have another prior for it; give it one that does not"
                )
            terms[depends].append(term)
        if not terms[True]:
            raise DataError(
                f"no term of the log density depends on {', '.join(self.cut)}: are the observed values, too, "
                "pm.Data?"
            )
        values = [model.rvs_to_values[rv] for rv in model.free_RVs]
        shown = model.replace_rvs_by_values(self.shown)
        outputs = [sum(terms[True]), sum(terms[False]) + pt.zeros(()), *shown]
        joined, q = join_nonshared_inputs(self.point, outputs, values)
        inputs = [pt.tensor(f"rows_{v.name}", dtype=v.dtype, shape=(None,) * v.ndim) for v in data]
        likelihood, prior, *shown = joined
        # Gradients first: whatever is replaced before them is replaced in them.
        pair = [likelihood, pytensor.grad(likelihood, q)]
        pair = pytensor.clone_replace(pair, dict(zip(data, inputs, strict=True)), rebuild_strict=False)
        slope = pytensor.grad(prior, q, disconnected_inputs="ignore")
        of_values = pytensor.function([q], shown, on_unused_input="ignore")
        return *self._compiled_pairs(q, inputs, pair, [prior, slope], bool(terms[False])), of_values

    def whole(self, data):
        """See `Functions`: the model's own, which reads the rows that it holds."""
        import pytensor
        from pymc.pytensorf import join_nonshared_inputs

        values = [self.model.rvs_to_values[rv] for rv in self.model.free_RVs]
        (joined,), q = join_nonshared_inputs(self.point, [self.model.logp()], values)
        return pytensor.function([q], joined, mode="FAST_COMPILE")

    def _compiled_pairs(self, q, inputs, likelihood, prior, has_prior):
        """Functions of the likelihood and the prior, and whether there is a prior."""
        import pytensor

        made = [([q, *inputs], likelihood), ([q], prior)]
        return *(pytensor.function(into, out, on_unused_input="ignore") for into, out in made), has_prior

    @staticmethod
    def _depends(term, data):
        found = set(_ancestors([term]))
        return any(variable in found for variable in data)

    def _call(self, which, *arguments):
        with _TURN:
            return self.compiled[which](*arguments)

    def likelihood(self, q, data):
        """See `Functions`."""
        value, gradient = self._call(0, q, *data)
        return float(value), np.asarray(gradient)

    def prior(self, q):
        """See `Functions`."""
        value, gradient = self._call(1, q)
        return float(value), np.asarray(gradient)

    def constrain(self, Q):
        """See `Functions`."""
        return np.array([np.concatenate([np.ravel(x) for x in self._call(-1, q)]) for q in Q])

    def _names(self):
        """Names of observed variables; of those that depend on rows, where rows are cut."""
        model, data = self.model, [self.model[name] for name in self.cut]
        observed = [
            one for one in model.observed_RVs if not data or self._depends(model.logp(vars=[one]), data)
        ]
        return [one.name for one in observed]

    def _points(self, values):
        """Draws as PyMC takes them."""
        names = [variable.name for variable in self.model.free_RVs]
        return [{name: values[name][k] for name in names} for k in range(len(values[names[0]]))]

    def pointwise(self, values, data):
        """See `Functions`."""
        from pymc.model.transform.conditioning import remove_value_transforms

        model = remove_value_transforms(self.model)
        names = self._names()
        of_each = model.compile_fn(
            inputs=model.value_vars,
            outs=model.logp(vars=[model[name] for name in names], sum=False),
            on_unused_input="ignore",
        )
        found = [of_each(point) for point in self._points(values)]
        return {name: np.array([parts[i] for parts in found]) for i, name in enumerate(names)}

    def predictions(self, values, data, seed):
        """See `Functions`."""
        import pymc

        names = self._names()
        made = pymc.sample_posterior_predictive(
            self._points(values),
            model=self.model,
            var_names=names,
            random_seed=seed,
            progressbar=False,
            return_inferencedata=False,
        )
        return {
            name: np.asarray(made[name]).reshape(len(values[next(iter(values))]), *made[name].shape[2:])
            for name in names
        }

    def observed(self, data):
        """See `Functions`."""
        model = self.model
        return {name: np.asarray(model.rvs_to_values[model[name]].eval()) for name in self._names()}


class _Numba(_PyMC):
    """Functions that PyTensor compiles by numba; data that are not cut are arguments, as rows are."""

    def _compiled_pairs(self, q, inputs, likelihood, prior, has_prior):
        """See `_PyMC`; then the joint density."""
        import pytensor
        from pytensor.compile.sharedvalue import SharedVariable

        made, kinds, self.fixed = [], [], []
        mode = pytensor.compile.mode.get_mode("NUMBA").including("local_check_parameter_to_ninf_switch")
        for rows, pair in ((inputs, likelihood), ([], prior)):
            fixed = [one for one in _ancestors(pair) if isinstance(one, SharedVariable)]
            places = [one.type() for one in fixed]
            pair = pytensor.clone_replace(pair, dict(zip(fixed, places, strict=True)))
            into = [*rows, *places]
            try:
                made.append(pytensor.function([q, *into], pair, mode=mode, on_unused_input="ignore"))
            except Exception as error:  # of PyTensor and numba, of many kinds
                raise DataError(f'backend="numba" cannot compile the model: {in_brief(error)}') from error
            kinds.append([(one.dtype, one.ndim) for one in into])
            self.fixed.append(fixed)
        graphs = [function.vm.jit_fn for function in made]
        density = compiled_density(graphs[0], graphs[1] if has_prior else None, *kinds)
        return *made, has_prior, density

    def _arguments(self, which, rows=()):
        """Arrays that the likelihood (0) or the prior (1) takes after q."""
        return *rows, *(one.get_value(borrow=True) for one in self.fixed[which])

    def arrays(self, rows):
        """Return all arrays that the joint density reads."""
        every = [*self._arguments(0, rows), *self._arguments(1)]
        return [np.require(x, requirements=["C", "A"]) for x in every]

    def likelihood(self, q, data):
        """See `Functions`."""
        value, gradient = self._call(0, q, *self._arguments(0, data))
        return float(value), np.asarray(gradient)

    def prior(self, q):
        """See `Functions`."""
        value, gradient = self._call(1, q, *self._arguments(1))
        return float(value), np.asarray(gradient)

    def model_of(self, log_likelihood, log_prior, rows, start, *, power, names):
        """See `Functions`."""
        none = np.zeros(0, np.int64)
        made = PyTensorDensity(callback, np.array([power]), none, names, start, own=self, rows=rows)
        check_density(made)
        return made


def _ancestors(variables):
    try:
        from pytensor.graph.traversal import ancestors
    except ImportError:  # its place before PyTensor 2.32
        from pytensor.graph.basic import ancestors
    return ancestors(variables)
