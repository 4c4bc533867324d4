"""`sample`: draws from the posterior of a user's density."""

from collections.abc import Mapping, Sized
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from numbers import Number
from typing import Any

import numpy as np

from ..._typing import Callback, Engine, FileName, Names, RandomState
from ...errors import DataError, shortened
from ...scheduler.coordinator import coordinated
from ...scheduler.tasks import check_ships
from ...scheduler.threads import effective_n_jobs
from .adapters.pointer import PointerDensity
from .models.autodiff import differentiated
from .models.density import VectorLayout, checked_names, checked_start
from .models.deterministic import Deterministic
from .models.external import ExternalModel
from .models.layout import NamedLayout
from .models.mixture import GaussianMixtureDensity
from .models.named import alone, named_model
from .models.pointwise import RowLikelihoods, SiteLikelihoods
from .models.prior_density import PriorDensity
from .models.row_sums import check_sum, gaps
from .parameters import NamedParameter
from .posterior.draws import Posterior
from .settings import SamplingSettings
from .shards.builds import UserBuild
from .shards.chains import Densities, draw_posterior
from .shards.rows import count_rows, cut_rows, number_of_shards, some_rows, taken_rows
from .shards.source_checks import check_shards, inspect_shard, only_checksum
from .shards.sources import Source, find_sources


@coordinated
def sample(
    log_likelihood: Any,
    log_prior: Any = None,
    data: Any = None,
    start: Any = None,
    *,
    names: Names | None = None,
    parameters: Mapping[str, NamedParameter] | None = None,
    priors: Mapping[str, PriorDensity] | None = None,
    autodiff: str | None = None,
    deterministic: Any = None,
    sampler: str = "auto",
    metric: str = "auto",
    n_samples: int = 1000,
    n_chains: int = 4,
    n_warmup: int = 1000,
    target_accept: float = 0.8,
    n_shards: int | str = 1,
    combine: str = "auto",
    n_proposals: int = 4000,
    engine: Engine = "local",
    checkpoint: FileName | None = None,
    n_jobs: int | None = None,
    random_state: RandomState | None = None,
    verbose: int = 0,
    callback: Callback | None = None,
) -> Posterior:
    """Draw from the posterior of a density that you write.

    Parameters
    ----------
    log_likelihood : callable, None, GaussianMixtureDensity, or a model of NumPyro, PyMC or Stan
        ``log_likelihood(p, data)`` for a named tuple p of the `parameters`, on the user's scale: p.beta and
        so on are numbers and arrays. It returns a float, or a tuple of it and a dict of derivatives by name.
        A function compiled by ``numba.njit`` may take ``(p, data, g)`` and add its derivatives to arrays
        g.beta and so on, which have one entry for a number: ``g.sigma[0] += ...``. Its data are an array, or
        a tuple of arrays, of floats or integers. Without derivatives the function is differenced, at 2 d
        evaluations a gradient. Compiled functions are some hundred times faster. None: draws from the prior.

        Without `parameters`, ``log_likelihood(q, data)`` for a vector q (d,) of any real numbers, with a
        gradient (d,), and compiled for data of floats of one or two axes. A model of `from_numpyro`,
        `from_pymc` or `from_bridgestan`, or a C function of `from_pointer`, is given alone, without
        log_prior, data, start and names.
    log_prior : callable, optional
        ``log_prior(p)``, or ``log_prior(q)``, in the same form; None is flat. It comes on top of `priors`.
        Only priors are raised to 1 / n_shards.
    data : array, DataFrame, tuple of arrays, or list of shards
        The first axis counts the observations. In several shards `log_likelihood` gets some of them, in the
        same form (of a DataFrame an array). Lists of numbers become arrays. A list of shards has an entry
        for each, which a worker reads: the path of a file (npy: an array; npz: a tuple of its arrays, or the
        only one; svmlight: ``(X, y)`` with X in CSR), a Dask Delayed, or a tuple of these.
    start : array-like of shape (d,), or dict of str to float, optional
        Of named `parameters` a dict of values; those that it lacks begin in the middle of their support. Of a
        vector, a point where the density is finite; chains begin within 2 of it. A dict has a number for each
        of the `names`; without `names` its keys are the names, in its order. By default zero for each of the
        `names`: one of the two is needed. A `GaussianMixtureDensity` has its own, and its own priors and
        names.
    names : sequence of d str, optional
        Names of the parameters; by default they are one vector, ``theta``.
    parameters : dict of str to NamedParameter, optional
        Names, supports and shapes: `real`, `positive`, `unit`, `interval`, `simplex`, `ordered`, `cholesky`.
        Chains, and combinations of shards, move in unconstrained numbers. Transforms and Jacobians are added
        to the density, and draws are values on the user's scale.
    priors : dict of str to PriorDensity, optional
        Densities of ``stradask.priors``, by name: ``{"beta": priors.normal(0, 2.5)}``. A parameter without
        any is flat on its support.
    autodiff : {None, "torch", "jax"}, default=None
        log_likelihood and log_prior are Python functions of PyTorch's tensors, or JAX's arrays, in double
        precision (parameters and data), and return one: that library gives the derivatives.
    deterministic : callable, optional
        ``deterministic(p)``, or ``deterministic(q)``, returns a dict of numbers and arrays that follow from
        the parameters. They are kept as further variables of the posterior, and judged with them. It is
        called once a draw, with numpy's arrays, after the sampling.
    sampler : {"auto", "laplace", "nuts", "split_hmc", "hmc", "mala", "random_walk", "slice", "smc"}
        "auto", the default, takes importance sampling about the mode, or all modes, if that is reliable, else
        "smc" if there are several modes, else slices if the density ends at a hard wall or jumps, else split
        Hamiltonian Monte Carlo if the density is close to normal, else NUTS. "smc" (annealed sequential Monte
        Carlo) is for several modes and for the evidence: `n_chains` populations of `n_samples` points, some
        80 gradients a point; `Posterior.log_evidence`.
    metric : {"auto", "adapted", "diagonal", "dense", "low_rank", "laplace"}, default="auto"
        Coordinates of NUTS, HMC, MALA, the random walk and slices. From windows of the warm-up: "diagonal"
        has standard deviations, "dense" the covariance, and "low_rank" scales with the strongest correlations
        of draws and gradients, which suits many correlated parameters but not priors with heavy tails.
        "adapted" is "low_rank" where the density is nearly normal, else the covariance if correlations are
        strong and draws many enough, else standard deviations. "laplace" is the Hessian at the mode. "auto"
        takes the mode if importance sampling about it is reliable, else "adapted".
    n_samples, n_chains, n_warmup : int
        Draws of each chain, after its warm-up of at most `n_warmup` draws.
    target_accept : float, default=0.8
        Acceptance to which NUTS and HMC adapt their step size; nearer to 1 for shorter steps and fewer
        divergences. A chain whose warm-up diverges starts again with 0.95.
    n_shards : int or "auto", default=1
        Each shard has a part of the data, and the prior to the power 1 / n_shards. The log-likelihood must
        then be a sum over rows, up to a constant, which is checked. "auto" leaves at least 100 observations a
        parameter to each shard, and is 1 below a million of observations times parameters. If `data` lists
        shards, "auto" or their number.
    combine : str, default="auto"
        How draws of shards are combined, see `combine`.
    n_proposals : int, default=4000
        At least so many points, and never fewer than draws, are weighted by the densities of all shards when
        these are combined. The error of the result depends on their number, however few draws are returned.
    engine : str or distributed.Client, default="local"
        Where chains run: "local" on threads of this process, "dask" on the current Dask client, or on that of
        a client or of a scheduler's address. The draws are bit-identical for any number of workers, and if
        workers are lost.
    checkpoint : path-like, optional
        A folder, visible to all workers, for files of 100 draws each. The same call resumes from them; with
        more `n_samples` it extends the run. Needs an integer `random_state`.
    n_jobs : int, optional
        Threads, over chains or shards; the draws do not depend on them. Python functions hold the GIL.
    random_state : int, RandomState or None
    verbose : int, default=0
    callback : callable, optional
        ``callback(info)`` after the warm-up and every hundred draws of all chains, or after every shard; True
        ends the run.

    Returns
    -------
    Posterior

    Raises
    ------
    DataError
        If the density is not finite at the start nor near by, constant in a parameter, or its gradient wrong:
        names the parameter. If there are several shards and `log_likelihood` is no sum over rows. For numbers
        of the wrong type or out of range.
    CombinationRefused
        With several shards, if no combination passes its diagnostics; lists them.

    Warns
    -----
    PosteriorWarning
        If the diagnostics say not to use the draws.
    UserWarning
        If the density is not finite at the start, so that chains begin near by.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> x = np.random.default_rng(0).normal(3, 1, 1000)
    >>> def log_likelihood(q, x):
    ...     return -0.5 * ((x - q[0]) ** 2).sum(), np.array([(x - q[0]).sum()])
    >>> posterior = sd.sample(log_likelihood, lambda q: -0.5 * (q[0] / 10) ** 2, x, [0.0], random_state=0)
    >>> posterior.mean()["theta"].round(1), posterior.sd()["theta"].round(2)
    (array([3.]), array([0.03]))

    Parameters by name, on their own scale:

    >>> def log_likelihood(p, x):
    ...     return -len(x) * np.log(p.sigma) - 0.5 * (((x - p.mean) / p.sigma) ** 2).sum()
    >>> parameters = {"mean": sd.real(), "sigma": sd.positive()}
    >>> priors = {"mean": sd.priors.normal(0, 10), "sigma": sd.priors.half_cauchy(5)}
    >>> posterior = sd.sample(log_likelihood, None, x, parameters=parameters, priors=priors, random_state=0)
    >>> posterior.mean()["sigma"].round(1)
    np.float64(1.0)
    """
    given: dict[str, Any] = {"sampler": sampler, "metric": metric, "target_accept": target_accept}
    given |= {"n_samples": n_samples, "n_chains": n_chains, "n_warmup": n_warmup}
    given |= {"n_shards": n_shards, "combine": combine, "n_proposals": n_proposals}
    given |= {"engine": engine, "checkpoint": checkpoint, "n_jobs": n_jobs, "random_state": random_state}
    data = _as_arrays(data)
    settings = SamplingSettings(**given, verbose=verbose, callback=callback).checked()
    problem = _problem(log_likelihood, log_prior, data, start, names, parameters, priors, autodiff)
    problem.check_ships(engine)
    derived = None if deterministic is None else problem.deterministic(deterministic)
    parts = problem.cut(settings)
    with problem.watched():
        densities = replace(problem.densities(parts, settings), derived=derived)
        posterior, _ = draw_posterior(densities, settings)
    return posterior


def _as_arrays(data):
    """Turn lists of numbers, and of such lists, into arrays; other data stay as they are."""
    if isinstance(data, tuple):
        return tuple(map(_as_arrays, data))
    if not isinstance(data, list) or not _is_numbers(data):
        return data
    try:
        array = np.array(data)
    except ValueError:  # of different lengths
        return data
    return array if array.dtype.kind in "biuf" else data


def _is_numbers(value):
    return isinstance(value, Number) or (isinstance(value, (list, tuple)) and all(map(_is_numbers, value)))


def _problem(log_likelihood, log_prior, data, start, names, parameters, priors, autodiff):
    """Assemble the density: a user's functions, a model of another library, or a mixture."""
    given = {"log_prior": log_prior, "start": start, "names": names, "parameters": parameters}
    given |= {"priors": priors, "autodiff": autodiff}
    if isinstance(log_likelihood, (ExternalModel, PointerDensity)):
        _check_alone(**given, data=data)
        return log_likelihood if isinstance(log_likelihood, PointerDensity) else _external(log_likelihood)
    if isinstance(log_likelihood, GaussianMixtureDensity):
        _check_absent(**given)
        return _mixture(log_likelihood, data)
    functions = {"log_likelihood": log_likelihood, "log_prior": log_prior}
    log_likelihood, log_prior = differentiated(functions, autodiff).values()
    if parameters is not None:
        return _named(log_likelihood, log_prior, data, start, names, NamedLayout(parameters, priors))
    if priors is not None:
        raise DataError("priors are those of named parameters: give parameters={name: real(), ...} as well")
    if start is None:
        start = _origin(names)
    elif isinstance(start, Mapping):
        start, names = _by_name(start, names)
    start = checked_start(start)
    layout = VectorLayout(len(start), names)
    return _Inference(log_likelihood, log_prior, data, start, find_sources(data), layout=layout)


def _named(log_likelihood, log_prior, data, start, names, layout):
    """A density of named parameters."""
    if names is not None:
        raise DataError("names are those of parameters: leave names out")
    if log_likelihood is None and data is not None:
        raise DataError(
            "log_likelihood is None, so that data are of no use: leave them out, to draw from the prior"
        )
    start = layout.start(start)
    return _Inference(log_likelihood, log_prior, data, start, find_sources(data), layout=layout)


def _external(model):
    """A model that its adapter has examined."""
    functions = model.functions
    return _Inference(
        functions.likelihood,
        None if model.in_one_piece else functions.prior,
        model.data,
        model.start,
        variables=model.variables,
        make=partial(functions.model_of, names=model.names),
        sites=SiteLikelihoods(functions, model.data),
    )


def _mixture(density, data):
    """A mixture, fitted to the data for where chains begin."""
    if find_sources(data) is not None:
        raise DataError("a GaussianMixtureDensity is fitted to its data first: give them as one array")
    fitted = density.fitted_to(data)
    return _Inference(
        density,
        None,
        fitted.points,
        fitted.start,
        variables=fitted.variables(),
        mixture=fitted.without_points(),
    )


@dataclass(frozen=True, eq=False)
class _Inference:
    """A density, its data, and where chains begin."""

    log_likelihood: Any
    log_prior: Any
    data: Any
    start: Any
    sources: list[Source] | None = None  # of shards that workers read
    make: Any = None  # of the model of some rows, where another library has its functions
    sites: SiteLikelihoods | None = None  # of observations, where another library knows them
    variables: dict | None = None  # names and shapes; given with what has been examined already
    mixture: Any = None
    layout: Any = None  # of the parameters of a user's functions

    def check_ships(self, engine):
        """Refuse functions that cannot be sent to workers."""
        if engine != "local":
            check_ships("log_likelihood", self.log_likelihood)
            check_ships("log_prior", self.log_prior)

    def watched(self):
        """Nothing needs to be watched while it is sampled; a context manager."""
        return nullcontext()

    def cut(self, settings):
        """Return the observations of each shard, which are taken or read where they are needed."""
        parts = (
            self._deal_rows(settings)
            if self.sources is None
            else _checked_sources(self.sources, settings.n_shards)
        )
        if len(parts) == 1:
            return parts
        settings.check_combines()
        return parts if self.sources is None else self._inspect_shards(parts, settings)

    def _deal_rows(self, settings):
        """Deal the rows out at random."""
        n_shards = settings.n_shards
        if isinstance(self.data, tuple) and not self.data:
            if n_shards not in (1, "auto"):
                raise DataError(
                    f"n_shards={n_shards}, but the model has no data_axis by which rows could be cut: give "
                    "one, or take n_shards=1"
                )
            return [self.data]
        if n_shards != 1:
            n_shards = number_of_shards(n_shards, count_rows(self.data), np.size(self.start))
        if n_shards == 1:
            return [self.data]
        return [
            some_rows(self.data, rows) for rows in cut_rows(count_rows(self.data), n_shards, settings.seed)
        ]

    def _inspect_shards(self, sources, settings):
        """Read every shard once on its worker, for its checksum and whether its likelihood is a sum."""
        inspect = only_checksum
        if self.variables is None:
            inspect = partial(inspect_shard, self.alone, self.start)
        return check_shards(sources, inspect, engine=settings.engine, n_jobs=settings.n_jobs)

    def densities(self, parts, settings):
        """Return the densities of the parts, each with its share of the prior."""
        builds, variables = self._builds(parts), self.variables or self.layout.variables
        rows_gap = None
        if len(parts) > 1 and self._deals_rows:
            rows_gap = _gap_of_rows(builds[0](), self, parts)
        return Densities(
            builds,
            lambda model: variables,
            n_held=None if self.sources is None else effective_n_jobs(settings.n_jobs),
            dealt=self.sources is None,
            rows_gap=rows_gap,
            log_likelihood=self._by_row(),
            judges_values=self.sites is not None,
        )

    def deterministic(self, function):
        """Examine a user's function of the parameters."""
        if self.variables is not None:
            raise DataError(
                "deterministic is for functions of yours: a model of another library has deterministic sites "
                "of its own, a GaussianMixtureDensity has none"
            )
        return Deterministic.of(function, self.layout, self.start)

    @property
    def alone(self):
        """Makes ``likelihood(q, data)``, where it is called."""
        return partial(alone, self.layout, self.log_likelihood, self.log_prior)

    def _by_row(self):
        """Log-likelihoods of observations, where the rows are here and the user's function is known."""
        if self.sites is not None:
            return self.sites
        known = self.variables is None and self.sources is None
        if not known or self.log_likelihood is None or self.data is None:
            return None
        return RowLikelihoods(self.log_likelihood, self.layout, self.data)

    def _builds(self, parts):
        power = 1 / len(parts)
        if self.mixture is not None:
            return [partial(_mixture_model, self.mixture, power, rows) for rows in parts]
        make = self.make or partial(named_model, layout=self.layout)
        functions, is_sum = (self.log_likelihood, self.log_prior), self._deals_rows and len(parts) > 1
        return [UserBuild(make, *functions, rows, self.start, power, is_sum) for rows in parts]

    @property
    def _deals_rows(self):
        """Whether rows are here, and the likelihood is checked to be a sum over them."""
        return self.sources is None and self.variables is None


def _checked_sources(sources, n_shards):
    """Return the sources, if the user gave no other number of shards."""
    if n_shards not in ("auto", len(sources)):
        raise DataError(
            f"n_shards={n_shards}, but data lists {len(sources)}: take n_shards='auto' or {len(sources)}"
        )
    return sources


def _gap_of_rows(model, problem, parts):
    """Check that the likelihood is a sum over rows; return a function of points that measures the gap."""
    alone = problem.alone()
    whole = taken_rows(some_rows(problem.data, None))
    taken = [partial(taken_rows, rows) for rows in parts]
    remedy = (
        "put priors into log_prior, standardise columns before and not inside, take sums over rows where "
        "there are means, and sample rows that depend on each other, such as a time series, in one piece "
        "(n_shards=1)"
    )
    check_sum(alone, whole, taken, model.start, remedy)
    return partial(gaps, alone, whole=whole, parts=taken)


def _origin(names):
    """Zeros, as many as there are names."""
    if names is None:
        raise DataError(
            "start is missing: name the parameters with their supports, such as parameters={'beta': "
            "sd.real(3), 'sigma': sd.positive()}; or give a point where the density is finite, one number a "
            "parameter; or names, to begin at zero"
        )
    if not isinstance(names, Sized):
        raise DataError(f"names must be a list of strings, one a parameter, got {shortened(names, 60)}")
    return np.zeros(len(names))


def _by_name(start, names):
    """Return the numbers of a dict in the order of the names, and the names."""
    names = checked_names(list(start) if names is None else names, None)
    faults = {
        "lacks": [name for name in names if name not in start],
        "has": [name for name in start if name not in names],
    }
    if any(faults.values()):
        words = (f"{what} {', '.join(map(repr, some))}" for what, some in faults.items() if some)
        raise DataError(
            f"start {' and '.join(words)}, but names are {', '.join(map(repr, names))}: give one number for "
            "each of the names, and no other"
        )
    for name in names:
        if np.ndim(start[name]):
            raise DataError(
                f"start[{shortened(name)}] must be one number, got the shape {np.shape(start[name])}: give "
                "each entry a name of its own"
            )
    return [start[name] for name in names], names


def _check_alone(**given):
    if any(value is not None for value in given.values()):
        raise DataError(
            f"a model of another library, or a C function, stands alone: leave out {', '.join(given)}"
        )


def _mixture_model(mixture, power, points):
    return mixture.model(taken_rows(points), power)


def _check_absent(**given):
    for name, value in given.items():
        if value is not None:
            raise DataError(
                f"{name} must be None with a GaussianMixtureDensity, which has its own; got "
                f"{shortened(value)}"
            )
