"""`sample`: the posterior of any density that a user can write down."""

import functools
import warnings
from collections.abc import Mapping, Sized
from numbers import Integral
from typing import Any

import numpy as np

from ..._typing import Callback, FileName, Names, RandomState
from ...errors import DataError, PosteriorWarning, in_brief, shortened
from ...scheduler.parameters import check_count, random_source
from ...scheduler.place import check_engine
from ...scheduler.tasks import check_ships
from ...scheduler.threads import effective_n_jobs
from ..inputs.pieces import checksum
from .chains.sampling import CAREFUL, check_settings
from .combine.combiners import COMBINERS
from .models.density import checked_names, user_model
from .models.external import ExternalModel
from .models.mixture import GaussianMixtureDensity
from .models.row_sums import NotASum, check_sum, depends, gaps, likelihood_alone
from .posterior.draws import Posterior
from .shards.chains import check_checkpoint, draw_posterior
from .shards.rows import Part, cut_rows, number_of_shards
from .shards.sources import Source, find_sources, look_at, with_columns


def sample(
    log_likelihood: Any,
    log_prior: Any = None,
    data: Any = None,
    start: Any = None,
    *,
    names: Names | None = None,
    sampler: str = "auto",
    n_samples: int = 1000,
    n_chains: int = 4,
    n_warmup: int = 1000,
    target_accept: float = 0.8,
    n_shards: int | str = 1,
    combine: str = "auto",
    n_proposals: int = 4000,
    engine: str = "local",
    checkpoint: FileName | None = None,
    n_jobs: int | None = None,
    random_state: RandomState | None = None,
    verbose: int = 0,
    callback: Callback | None = None,
) -> Posterior:
    """Draw from the posterior of a density of your own.

    Parameters
    ----------
    log_likelihood : callable, GaussianMixtureDensity, or a model of NumPyro, PyMC or Stan
        What `from_numpyro`, `from_pymc` and `from_bridgestan` make stands alone, without log_prior, data,
        start and names. Else
        ``log_likelihood(q, data)`` for parameters q (d,) that may be any real numbers: take logarithms of
        what must be positive, and add the logarithm of the Jacobian to the prior. Returns a float, or a tuple
        of it and the gradient. A function compiled by ``numba.njit`` may take ``(q, data, g)`` and add its
        gradient to g; its data are an array of floats of one or two axes. Without a gradient it is
        differenced. Compiled functions are some hundred times faster.
    log_prior : callable, optional
        ``log_prior(q)``, in the same way; None is flat. It alone is raised to 1 / n_shards.
    data : array, DataFrame, tuple of arrays, or list of where shards lie
        The first axis counts the observations. In several shards `log_likelihood` gets some of them, in the
        same form (of a DataFrame an array). Entries of a list are paths of files (npy: an array; npz: its
        arrays in a tuple, of one alone the array; svmlight: ``(X, y)`` with X in CSR), Delayed of Dask's, or
        tuples of these: each is a shard, and is read where that is worked on.
    start : array-like of shape (d,), or dict of str to float, optional
        A point where the density is finite; chains begin within 2 of it. A dict has a number for each of the
        `names`, or is these names in its own order where `names` is None. By default zero for each of the
        `names`: one of the two is needed. A `GaussianMixtureDensity` has its own, and its own priors and
        names.
    names : sequence of d str, optional
        Of the parameters; by default they are one vector, ``theta``.
    sampler : {"auto", "laplace", "nuts", "split_hmc", "hmc", "mala", "random_walk", "slice"}, default="auto"
        "auto" takes importance sampling about the mode where that is reliable, else split Hamiltonian Monte
        Carlo where it accepts enough, else NUTS.
    n_samples, n_chains, n_warmup : int
        Draws of each chain after its warm-up of `n_warmup`.
    target_accept : float, default=0.8
        Acceptance that NUTS and HMC find their step size by; nearer to 1 for shorter steps and fewer
        divergences. A chain whose warm-up diverges begins anew with 0.95.
    n_shards : int or "auto", default=1
        Each has a part of the data and the prior to the power 1 / n_shards. `log_likelihood` must be a sum
        over rows then, up to a constant, which is checked. "auto" leaves at least 100
        observations a parameter to each, and is 1 below a million of observations times parameters. Where
        `data` lists shards, "auto" or their number.
    combine : str, default="auto"
        From shards' draws to the posterior, see `combine`.
    n_proposals : int, default=4000
        Points that a combination of shards weighs by all their densities, at least; there are never fewer
        than draws. The error of the result follows from their number, however few draws are asked for.
    engine : str, default="local"
        Where chains run: "local" on threads of this process, "dask" on the current Dask client, or the
        address of a Dask scheduler. The draws are the same, bit for bit, for any number of workers, and if
        some of them die.
    checkpoint : path-like, optional
        A folder, seen by all workers, for files of 100 draws each. The same call finds them, and goes on
        where it was stopped; with more `n_samples` it extends the run. Needs an integer `random_state`.
    n_jobs : int, optional
        Threads, over chains or shards; the draws do not depend on them. Python functions wait for each other.
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
        If the density is not finite at the start, constant in a parameter, or its gradient wrong: names the
        parameter. If there are several shards and `log_likelihood` is no sum over rows. For numbers that are
        none, or out of range.
    CombinationRefused
        With several shards, where no combination can be trusted; says what was seen.

    Warns
    -----
    PosteriorWarning
        If the diagnostics say not to use the draws.

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
    """
    constrain, variables, rows_gap = None, None, None
    if isinstance(log_likelihood, ExternalModel):
        external = log_likelihood
        _check_alone(log_prior=log_prior, data=data, start=start, names=names)
        log_likelihood, log_prior = external.functions.likelihood, external.functions.prior
        data, start, names = external.data, external.start, external.names
        constrain, variables = external.functions.constrain, external.variables
    if not isinstance(combine, str) or combine not in COMBINERS:
        raise DataError(f"combine={shortened(combine)} is unknown: take one of {', '.join(COMBINERS)}")
    automatic = isinstance(n_shards, str) and n_shards == "auto"
    if not automatic and (isinstance(n_shards, bool) or not isinstance(n_shards, Integral)):
        raise DataError(f"n_shards must be 'auto' or an integer, got {shortened(n_shards)}")
    check_settings(sampler, n_samples, n_chains, n_warmup)
    check_count("n_proposals", n_proposals)
    effective_n_jobs(n_jobs)
    if not isinstance(target_accept, (int, float, np.integer, np.floating)) or not 0 < target_accept < 1:
        raise DataError(f"target_accept must be a number between 0 and 1, got {shortened(target_accept)}")
    if not isinstance(verbose, Integral):
        raise DataError(f"verbose must be a whole number, got a {type(verbose).__name__}")
    check_engine(engine)
    check_checkpoint(checkpoint, random_state)
    if engine != "local":
        check_ships("log_likelihood", log_likelihood)
        check_ships("log_prior", log_prior)
    seed = int(random_source(random_state).randint(2**31))
    mixture, sources = None, find_sources(data)
    if isinstance(log_likelihood, GaussianMixtureDensity):
        _check_absent(log_prior=log_prior, start=start, names=names)
        if sources is not None:
            raise DataError("a GaussianMixtureDensity is fitted to its data first: give them as one array")
        mixture = log_likelihood.fitted_to(data)
        data, start = mixture.points, mixture.start
    elif start is None:
        start = _origin(names)
    elif isinstance(start, Mapping):
        start, names = _by_name(start, names)
    n_shards, parts = _cut(data, sources, n_shards, np.size(start), seed)
    if n_shards > 1 and sampler == "laplace":
        raise DataError("sampler='laplace' gives weighted draws, which no combination takes: n_shards=1")
    own = mixture is None and constrain is None  # what adapters make was checked when they made it
    if sources is not None and n_shards > 1:
        looked = functools.partial(_looked, log_likelihood, log_prior, start) if own else _unlooked
        parts = _seen(sources, looked, engine=engine, n_jobs=n_jobs)
    if mixture is None:
        made = functools.partial(_model, log_likelihood, log_prior)
        options = {"power": 1 / n_shards, "names": names, "constrain": constrain}
        builds = [functools.partial(made, part, start, **options) for part in parts]
        if variables is None:
            size = np.size(start)
            variables = {"theta": (size,)} if names is None else dict.fromkeys(checked_names(names, size), ())
        if own and n_shards > 1 and sources is None:
            rows_gap = _gap_of_rows(builds[0](), log_likelihood, log_prior, data, parts)
    else:
        made = functools.partial(_mixture, mixture.without_points(), 1 / n_shards)
        builds, variables = [functools.partial(made, part) for part in parts], mixture.variables()
    posterior, _ = draw_posterior(
        builds,
        lambda model: variables,
        sampler=sampler,
        n_samples=n_samples,
        n_chains=n_chains,
        n_warmup=n_warmup,
        seed=seed,
        target=target_accept if sampler in ("auto", *CAREFUL) else None,
        combine=combine,
        n_proposals=n_proposals,
        engine=engine,
        checkpoint=checkpoint,
        n_jobs=n_jobs,
        verbose=verbose,
        callback=callback,
        n_held=None if sources is None else effective_n_jobs(n_jobs),
        dealt=sources is None,
        rows_gap=rows_gap,
    )
    return posterior


def _gap_of_rows(model, log_likelihood, log_prior, data, parts):
    """Check that the likelihood is a sum over rows; return what tells at any points by how much."""
    alone = likelihood_alone(log_likelihood, log_prior)
    whole = _taken(_some(data, None))
    taken = [functools.partial(_taken, part) for part in parts]
    remedy = (
        "put priors into log_prior, take sums over rows where there are means, and sample rows that depend "
        "on each other, such as a time series, in one piece (n_shards=1)"
    )
    check_sum(alone, whole, taken, model.start, remedy)
    return functools.partial(gaps, alone, whole=whole, parts=taken)


def _origin(names):
    """Zeros, as many as there are names."""
    if names is None:
        raise DataError(
            "start is missing: give a point where the density is finite, one number a parameter; or names, "
            "to begin at zero"
        )
    if not isinstance(names, Sized):
        raise DataError(f"names must be a list of strings, one a parameter, got {shortened(names, 60)}")
    return np.zeros(len(names))


def _by_name(start, names):
    """Return the numbers of a dict in the order of the names, and these."""
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
        raise DataError(f"a model of another library stands alone: leave out {', '.join(given)}")


def _cut(data, sources, n_shards, d, seed):
    """Count the shards, and say what each has."""
    if sources is not None:
        if n_shards not in ("auto", len(sources)):
            raise DataError(
                f"n_shards={n_shards}, but data lists {len(sources)}: take n_shards='auto' or {len(sources)}"
            )
        return len(sources), sources
    if n_shards != 1:
        n_shards = number_of_shards(n_shards, _n_rows(data), d)
    if n_shards == 1:
        return 1, [data]
    return n_shards, [_some(data, rows) for rows in cut_rows(_n_rows(data), n_shards, seed)]


def _seen(sources, looked, **places):
    """Read every shard once where it is worked on, so that later readings can be told from it."""
    sources = with_columns(sources, **places)
    found = look_at([functools.partial(looked, source) for source in sources], **places)
    told = [words for _, words in found if words]
    if told:
        warnings.warn(
            f"{told[0]}. Shards that you cut yourself are right where all rows that belong together lie in "
            "one of them, and wrong otherwise, as with means over rows",
            PosteriorWarning,
            stacklevel=3,
        )
    return [source.known(checksum=total) for source, (total, _) in zip(sources, found, strict=True)]


def _unlooked(source, shard):
    return checksum(source.read()), ""


def _looked(log_likelihood, log_prior, start, source, shard):
    """The checksum of a shard, and what speaks against its likelihood's being a sum over its rows.

    A shard may hold whole groups of rows, whose likelihood is no sum over single rows. But without any rows
    nothing may be left that depends on the parameters.
    """
    total, rows = checksum(source.read()), source.take()
    alone, n, start = likelihood_alone(log_likelihood, log_prior), _n_rows(rows), np.asarray(start, float)
    halves = [functools.partial(_chosen, rows, np.arange(first, n, 2)) for first in (0, 1)]
    try:
        check_sum(alone, rows, halves, start, "")
    except NotASum as error:
        none = functools.partial(_chosen, rows, np.arange(0))
        if depends(alone, none(), start):
            raise DataError(
                f"{source}: log_likelihood depends on the parameters where there are no rows at all, so that "
                "each shard counts this part: put it into log_prior"
            ) from error
        return total, f"{source}: {error}".rstrip("; ")
    except DataError:  # no density at the start: the model says so, with the shard
        return total, ""
    return total, ""


def _chosen(rows, which):
    if isinstance(rows, tuple):
        return tuple(_chosen(part, which) for part in rows)
    return rows[which]


def _model(log_likelihood, log_prior, data, *arguments, **options):
    if not isinstance(data, Source):
        return user_model(log_likelihood, log_prior, _taken(data), *arguments, **options)
    rows = data.take()
    try:
        return user_model(log_likelihood, log_prior, rows, *arguments, **options)
    except DataError as error:
        raise DataError(f"{data}: {error}") from error


def _mixture(mixture, power, points):
    return mixture.model(_taken(points), power)


def _check_absent(**given):
    for name, value in given.items():
        if value is not None:
            raise DataError(
                f"{name} must be None with a GaussianMixtureDensity, which has its own; got "
                f"{shortened(value)}"
            )


def _n_rows(data):
    parts = data if isinstance(data, tuple) else (data,)
    try:
        sizes = {len(part) for part in parts}
    except TypeError as error:
        raise DataError(
            f"data must have observations along the first axis to be cut into shards: {in_brief(error)}"
        ) from error
    if len(sizes) != 1 or not max(sizes):
        raise DataError(
            f"all arrays of data must have as many observations, and at least one; they have {sizes}"
        )
    return sizes.pop()


def _some(data, rows):
    """The observations of a shard, not yet taken."""
    if isinstance(data, tuple):
        return tuple(_some(part, rows) for part in data)
    return Part(np.asarray(data), rows)


def _taken(data):
    if isinstance(data, tuple):
        return tuple(map(_taken, data))
    return data.take() if isinstance(data, Part) else data
