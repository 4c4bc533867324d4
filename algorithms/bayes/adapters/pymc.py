"""Models written in PyMC.

What has rows must be ``pm.Data`` along the data's dimension. The likelihood is every term of the model's log
density that depends on such data; the others, with the Jacobians of constrained variables, are the prior.
"""

from typing import Any

import numpy as np

from ....errors import DataError, shortened
from ..models.external import ExternalModel, Functions, flat_names, needed


def from_pymc(model: Any, *, data_axis: Any = None) -> ExternalModel:
    """Take a model written in PyMC for `sample`.

    Parameters
    ----------
    model : pymc.Model
        All its arrays with rows, observed ones too, as ``pm.Data(name, values, dims=(data_axis, ...))``.
    data_axis : str, optional
        Name of their first dimension. None takes the density in one piece, for models without independent
        rows, such as time series and Gaussian processes. Deterministic variables are kept if they depend
        on no data along the axis.

    Returns
    -------
    ExternalModel
        For ``sample(model, ...)``. Its parameters have PyMC's names, shapes and constraints; chains begin
        near the model's initial point.

    Raises
    ------
    DataError
        If no data have that dimension, a parameter is discrete or depends on rows, or the log density does.

    Notes
    -----
    Terms that depend on no row enter with the power 1 / n_shards. Each gradient passes through Python.

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
    functions = _PyMC(model, tuple(cut), point, tuple(x[:1] for x in cut.values()), start)
    shown = [variable.name for variable in functions.shown]
    sizes = functions.compiled[3](start)
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
        made = [([q, *inputs], pair), ([q], [prior, slope]), ([q], shown)]
        functions = [pytensor.function(into, out, on_unused_input="ignore") for into, out in made]
        return functions[0], functions[1], bool(terms[False]), functions[2]

    @staticmethod
    def _depends(term, data):
        try:
            from pytensor.graph.traversal import ancestors
        except ImportError:  # its place before PyTensor 2.32
            from pytensor.graph.basic import ancestors
        found = set(ancestors([term]))
        return any(variable in found for variable in data)

    def likelihood(self, q, data):
        """See `Functions`."""
        value, gradient = self.compiled[0](q, *data)
        return float(value), np.asarray(gradient)

    def prior(self, q):
        """See `Functions`."""
        value, gradient = self.compiled[1](q)
        return float(value), np.asarray(gradient)

    def constrain(self, Q):
        """See `Functions`."""
        return np.array([np.concatenate([np.ravel(x) for x in self.compiled[3](q)]) for q in Q])

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
