"""Models written in NumPyro.

The plate that the rows are in says what is the likelihood: observed sites (and factors) inside it. All else,
with the Jacobians of constrained sites, is the prior. JAX differentiates both, in double precision. Only
NumPyro's public functions are used: the density of the whole is ``-potential_energy``, and the prior is the
whole of one row without that row's likelihood. Both together are compared with the whole of all rows.
"""

from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from ....errors import DataError, in_brief, shortened
from ...inputs.matrices import check_takes
from ..models.external import (
    SHIFTS,
    ExternalModel,
    Functions,
    check_named,
    flat_names,
    is_same,
    needed,
    rows_of,
)
from .batches import BatchModel

_BATCH = 4  # points of a call
_STANDARDISED = (
    "a model that standardises or centres columns by their own mean, or takes other means over rows, would "
    "take those of its rows in each shard. Standardise the data before, or take the model in one piece "
    "(data_axis=None)"
)
_MOST_OPERATIONS = 1e5  # of a density that is evaluated for all of them on one thread


def from_numpyro(model: Any, data: Any, *, data_axis: Any = None, start: Any = None) -> ExternalModel:
    """Take a model written in NumPyro for `sample`.

    Parameters
    ----------
    model : callable
        ``model(**data)``, its observations inside ``numpyro.plate(data_axis, n)`` with an n that it takes
        from the data, such as ``len(y)``. No parameter may be inside that plate.
    data : dict
        Arguments of the model. Arrays with as many rows as the plate are cut into shards; all else is handed
        on as it is.
    data_axis : str, optional
        Name of the plate. None takes the density in one piece, for models without independent rows, such as
        time series and Gaussian processes. Deterministic sites are kept if they do not depend on the rows.
    start : dict of str to array, optional
        Values of the parameters; by default zero in unconstrained space.

    Returns
    -------
    ExternalModel
        For ``sample(model, ...)``. Its parameters have NumPyro's names, shapes and constraints.

    Raises
    ------
    DataError
        If there is no such plate, it is subsampled, a parameter is inside it or discrete, no argument has its
        rows, or a site outside of it depends on them: names the site.

    Notes
    -----
    Sites outside of the plate enter with the power 1 / n_shards, observed ones too. Each gradient passes
    through Python: some 50 microseconds more than NumPyro alone takes for it. Chains of a small model in one
    piece of the data, without files of draws, go together on one thread, and share each call of JAX.

    Examples
    --------
    >>> import stradask as sd
    >>> def model(x):  # doctest: +SKIP
    ...     mean = numpyro.sample("mean", dist.Normal(0, 10))
    ...     with numpyro.plate("rows", len(x)):
    ...         numpyro.sample("x", dist.Normal(mean, 1), obs=x)
    >>> taken = sd.from_numpyro(model, {"x": x}, data_axis="rows")  # doctest: +SKIP
    >>> posterior = sd.sample(taken, n_shards=4)  # doctest: +SKIP
    """
    if not callable(model):
        raise DataError(f"model must be a function, as NumPyro's are, got a {type(model).__name__}")
    check_named(data)
    check_takes("model", model, **data)
    needed("numpyro", "from_numpyro")
    import jax
    from numpyro.infer.util import unconstrain_fn

    with double_precision():
        sites = _trace(model, data)
        if data_axis is not None and sites.get(data_axis, {}).get("type") != "plate":
            plates = [name for name, site in sites.items() if site["type"] == "plate"]
            raise DataError(f"data_axis={shortened(data_axis)} is no plate of the model; there are {plates}")
        n, part = (0, None) if data_axis is None else sites[data_axis]["args"]
        if part is not None and part != n:
            raise DataError(
                f"the plate {shortened(data_axis)} takes {part} of {n} rows: sample it without subsampling"
            )
        parameters = {name: site["value"] for name, site in sites.items() if _is_parameter(site)}
        for name in parameters:
            _check_parameter(name, sites[name], data_axis)
        cut: dict = {}
        fixed = dict(data)
        if data_axis is not None:
            cut, fixed = rows_of(data, n, f"the plate {shortened(data_axis)}")
        if start is not None:
            parameters = {name: np.asarray(start[name], dtype=float) for name in parameters}
        free = unconstrain_fn(model, (), data, parameters)
        shapes = {name: np.shape(free[name]) for name in sorted(free)}
        q, _ = jax.flatten_util.ravel_pytree({name: free[name] for name in shapes})
        q = np.asarray(q, dtype=float) if start is not None else np.zeros(len(q))
        functions = _NumPyro(
            model, fixed, tuple(cut), data_axis, shapes, tuple(x[:1] for x in cut.values()), q
        )
        if data_axis is not None:
            functions.check_rows(tuple(cut.values()))
        shown = functions.learn_shown(tuple(cut.values()))
    variables = {name: np.shape(shown[name]) for name in sorted(shown)}
    return ExternalModel(functions, tuple(cut.values()), q, flat_names(shapes), variables)


def double_precision():
    """Let JAX compute in double precision, in this thread and for a while."""
    import jax

    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


def _is_small(lowered):
    """Whether a density takes less time than a call of it: some ten microseconds."""
    costs = lowered.cost_analysis() or {}
    # Functions of other libraries, such as Cholesky's, are not in the count.
    return costs.get("flops", np.inf) <= _MOST_OPERATIONS and "custom_call" not in lowered.as_text()


def _trace(model, data, values=None):
    """Run the model once; parameters are drawn, or have the values given."""
    from numpyro import handlers

    run = model if values is None else handlers.substitute(model, data=values)
    return handlers.trace(handlers.seed(run, 0)).get_trace(**data)


def _log_density(site):
    logp = site["fn"].log_prob(site["value"]).sum()
    return logp if site["scale"] is None else site["scale"] * logp


def _of_first_row(site, dim):
    """Log density of the first row of a site in the plate, whose rows are along that dimension."""
    logp = np.asarray(site["fn"].log_prob(site["value"]))
    logp = np.take(logp, 0, axis=dim) if logp.ndim >= -dim else logp
    return logp.sum() if site["scale"] is None else site["scale"] * logp.sum()


def _is_parameter(site):
    return site["type"] == "sample" and not site["is_observed"]


def _check_parameter(name, site, data_axis):
    if data_axis is not None and any(frame.name == data_axis for frame in site["cond_indep_stack"]):
        raise DataError(
            f"the parameter {shortened(name)} is inside the plate {shortened(data_axis)}: each row has one "
            "of its own, which shards cannot share; integrate it out, or cut by groups"
        )
    if site["fn"].support.is_discrete:
        raise DataError(
            f"the parameter {shortened(name)} is discrete: sum it out, as there is no gradient in it"
        )


class _NumPyro(Functions):
    """See `Functions`."""

    def __init__(self, model, fixed, cut, axis, shapes, row, start):
        self.model, self.fixed, self.cut, self.axis = model, fixed, cut, axis
        self.shapes, self.row, self.start = shapes, row, start
        self.names: tuple = ()  # of what draws show

    def _data(self, rows):
        return self.fixed | dict(zip(self.cut, rows, strict=True))

    def _free(self, q):
        """Parameters by name, unconstrained."""
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        ends = np.cumsum(sizes)
        return {
            name: q[end - size : end].reshape(shape)
            for (name, shape), size, end in zip(self.shapes.items(), sizes, ends, strict=True)
        }

    def _constrained(self, q, rows):
        from numpyro.infer.util import constrain_fn

        return constrain_fn(self.model, (), self._data(rows), self._free(q), return_deterministic=True)

    def learn_shown(self, rows):
        """Values by name of parameters, and of deterministic sites that are the same for one row and all."""
        points = [self.start + shift for shift in SHIFTS]
        pairs = [(self._constrained(q, self.row), self._constrained(q, rows)) for q in points]
        one = pairs[0][0]
        self.names = tuple(
            name
            for name in sorted(one)
            if name in self.shapes or all(is_same(few[name], every[name]) for few, every in pairs)
        )
        return {name: one[name] for name in self.names}

    def _sites_at(self, q, rows):
        """Sites with a log density at q: their names, the plate's frames that they are in, and they."""
        values = self._constrained(q, rows)
        sites = _trace(self.model, self._data(rows), {name: values[name] for name in self.shapes})
        for name, site in sites.items():
            if site["type"] == "sample":
                yield name, [frame for frame in site["cond_indep_stack"] if frame.name == self.axis], site

    def _likelihood(self, q, rows):
        if self.axis is None:
            return self._whole(q, rows)
        total = 0.0
        for _, frames, site in self._sites_at(q, rows):
            if frames and frames[0].size != len(rows[0]):
                raise DataError(
                    f"the plate {shortened(self.axis)} has {frames[0].size} rows where the data have "
                    f"{len(rows[0])}: let the model take its size from the data"
                )
            total = total + (_log_density(site) if frames else 0.0)
        return total

    def check_rows(self, rows):
        """Refuse sites outside the plate that depend on the rows, and rows that depend on others.

        The prior is computed from one row, and a shard knows none of the other shards' rows.
        """
        outside: set[str] = set()

        def changes(data):
            first: dict[str, Any] = {}
            last: dict[str, Any] = {}
            for densities, shift in zip((first, last), SHIFTS, strict=True):
                for name, frames, site in self._sites_at(self.start + shift, data):
                    densities[name] = _of_first_row(site, frames[0].dim) if frames else _log_density(site)
                    outside.update([] if frames else [name])
            return {name: last[name] - first[name] for name in first}

        of_every = changes(rows)
        try:
            with np.errstate(all="ignore"):
                of_one = changes(self.row)
        except ValueError as error:  # of a parameter that is NaN: the deviation of one row is zero
            if "got invalid" not in str(error):
                return  # what does not go with one row is found with the halves
            raise DataError(f"the model fails with one row, {in_brief(error)}: {_STANDARDISED}") from error
        for name, change in of_every.items():
            if is_same(of_one[name], change):
                continue
            if name not in outside:
                raise DataError(
                    f"the log density of a row of the site {shortened(name)} depends on the other rows: "
                    f"{_STANDARDISED}"
                )
            raise DataError(
                f"the log density of the site {shortened(name)} depends on the rows, but the site is "
                f"outside the plate {shortened(self.axis)}: put it inside, one number a row, or take the "
                "model in one piece (data_axis=None)"
            )

    def whole(self, data):
        """See `Functions`."""

        def log_density(q):
            with double_precision():
                return float(self._whole(q, data))

        return log_density

    def _whole(self, q, rows):
        from numpyro.infer.util import potential_energy

        return -potential_energy(self.model, (), self._data(rows), self._free(q))

    def _prior(self, q, rows):
        return self._whole(q, rows) - self._likelihood(q, rows)

    def compile(self):
        """Derivatives, compiled by JAX for each number of rows."""
        import jax

        values = jax.vmap(partial(self._constrained, rows=self.row))
        return (
            jax.jit(jax.value_and_grad(self._likelihood)),
            jax.jit(jax.value_and_grad(self._prior)),
            jax.jit(values),
        )

    def model_of(self, log_likelihood, log_prior, rows, start, *, power, names):
        """See `Functions`. Small densities are evaluated for four chains in one call."""
        import jax

        made = super().model_of(log_likelihood, log_prior, rows, start, power=power, names=names)

        def density(q, rows):
            value = self._likelihood(q, rows)
            return value if self.axis is None else value + power * self._prior(q, self.row)

        def joined(q, rows):
            value, slope = jax.value_and_grad(density)(q, rows)
            return jax.numpy.append(slope, value)

        with double_precision():
            if not _is_small(jax.jit(joined).lower(start, rows)):
                return made
            of_four = jax.jit(jax.vmap(joined, in_axes=(0, None)))
            there = jax.device_put(rows)

        def batch(Q):
            n = len(Q)
            padded = np.concatenate([Q, np.repeat(Q[-1:], -n % _BATCH, axis=0)])
            with double_precision():
                parts = [of_four(part, there) for part in padded.reshape(-1, _BATCH, Q.shape[1])]
                results = np.concatenate([np.asarray(part) for part in parts])[:n]
            return results[:, -1], results[:, :-1]

        own = {field.name: getattr(made, field.name) for field in fields(made)}
        return BatchModel(**own, batch=batch)

    def likelihood(self, q, data):
        """See `Functions`."""
        with double_precision():
            value, gradient = self.compiled[0](q, data)
            return float(value), np.asarray(gradient)

    def prior(self, q):
        """See `Functions`."""
        with double_precision():
            value, gradient = self.compiled[1](q, self.row)
            return float(value), np.asarray(gradient)

    def constrain(self, Q):
        """See `Functions`."""
        with double_precision():
            values = self.compiled[2](Q)
            return np.concatenate([np.asarray(values[name]).reshape(len(Q), -1) for name in self.names], 1)

    def _sites(self, rows):
        """Observed sites; those of the plate, if there is one."""
        sites = _trace(self.model, self._data(rows))
        return {
            name: site
            for name, site in sites.items()
            if site["type"] == "sample"
            and site["is_observed"]
            and (self.axis is None or any(f.name == self.axis for f in site["cond_indep_stack"]))
        }

    def pointwise(self, values, data):
        """See `Functions`."""
        from numpyro.infer import log_likelihood

        with double_precision():
            known = self._sites(data)
            draws = {name: np.asarray(values[name]) for name in self.shapes}
            found = log_likelihood(self.model, draws, **self._data(data))
            return {name: np.asarray(part) for name, part in found.items() if name in known}

    def predictions(self, values, data, seed):
        """See `Functions`."""
        import jax
        from numpyro.handlers import uncondition
        from numpyro.infer import Predictive

        with double_precision():
            names = list(self._sites(data))
            draws = {name: np.asarray(values[name]) for name in self.shapes}
            # Observed sites would give what was observed: the data stay, for what else depends on them.
            drawn = Predictive(uncondition(self.model), draws, return_sites=names)
            found = drawn(jax.random.PRNGKey(seed), **self._data(data))
            return {name: np.asarray(found[name]) for name in names}

    def observed(self, data):
        """See `Functions`."""
        with double_precision():
            return {name: np.asarray(site["value"]) for name, site in self._sites(data).items()}
