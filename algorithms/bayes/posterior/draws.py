"""The `Posterior`: draws by name, their summaries, and whether to trust them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from ...._typing import Array, ArrayLike, FileName, Names, RandomState
from ...._version import __version__
from ....errors import DataError, ModelFileError, StradaskError, shortened
from ....scheduler.stores.store import read_npz, write_npz
from ..._persistence import POSTERIOR_FORMAT
from ..._table import Table, pandas
from .convergence import ess, split_rhat
from .diagnostics import EVIDENCE_ERROR, LOG_EVIDENCE, Diagnostics, checked_line
from .psis import importance_ess, resample
from .tables import (
    by_name,
    checked_variables,
    column_names,
    finite,
    is_text,
    normalised,
    quantile_levels,
    shape_of,
    weighted_quantiles,
)

_VERSION = 1  # of files; grows when older code could not read them
STATISTICS = ("lp", "acceptance_rate", "n_steps", "tree_depth", "diverging", "energy", "step_size")


class NotKept:
    """What a `Posterior` knows for as long as it lives; pickled it is None, as data may be large."""

    def __reduce__(self):
        return type(None), ()

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


class NamedValues(dict[str, Array]):
    """Values by name, which are attributes as well: ``values["sigma"]`` is ``values.sigma``."""

    def __getattr__(self, name: str) -> Array:
        if name in self:
            return self[name]
        raise AttributeError(f"there is no variable {name!r}; there are {', '.join(self)}")


class Posterior:
    """Draws of a posterior distribution.

    It iterates over the names of its variables; ``dict(posterior)`` has their draws.

    Parameters
    ----------
    draws : array-like of shape (n, d)
        In the parameters' own space. Columns follow `variables`, arrays in C order.
    variables : dict of str to tuple of int or list of str, optional
        Names and shapes; of a vector also what its entries are called. By default one vector ``"theta"``.
    log_weights : array-like of shape (n,), optional
        Of importance sampling, up to a constant; None where all draws count alike.
    n_chains : int, optional
        Where the draws are those of so many chains, one after another; None where they are independent or
        weighted.
    shard_draws : array-like of shape (M, chains, T, d), optional
        What was combined, in the same space as `draws`; only its first columns where the others belong to
        one shard each.
    diagnostics : Diagnostics, optional
    method : str, default=""
        How the draws were made.
    log_likelihood : callable, optional
        ``log_likelihood(values)`` for a dict of draws by name returns (draws, observations). Not saved.
    statistics : array-like of shape (n, 7), optional
        Of the draws of chains, as ArviZ names them: lp (in the space in which chains move), acceptance_rate,
        n_steps, tree_depth, diverging, energy, step_size.

    Attributes
    ----------
    draws : ndarray of shape (n, d)
        Of the posterior only together with `weights`, where there are `log_weights`. Regressions and
        `stradask.sample` give none: they resample weighted draws once.
    log_weights : ndarray of shape (n,) or None
        Normalised.
    names : list of d str
        Of the columns: ``"scale"``, ``"coef[0]"``, ``"table[1,2]"``, ``"group[north]"``.
    variables : dict of str to tuple of int
    labels : dict of str to list of str
        Of vectors whose entries have names.
    n_chains, shard_draws, diagnostics, method, statistics
        As given.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.bayes.posterior.draws import Posterior
    >>> x = np.random.default_rng(0).normal([0, 1, 2], 1, (4000, 3))
    >>> posterior = Posterior(x, {"coef": (2,), "scale": ()})
    >>> posterior["coef"].shape, round(float(posterior.mean()["scale"]), 1)
    ((4000, 2), 2.0)
    >>> posterior.summary(quantiles=(0.5,)).rows
    ['coef[0]', 'coef[1]', 'scale']
    """

    def __init__(
        self,
        draws: ArrayLike,
        variables: Any = None,
        *,
        log_weights: ArrayLike | None = None,
        n_chains: int | None = None,
        shard_draws: Any = None,
        diagnostics: Any = None,
        method: str = "",
        log_likelihood: Any = None,
        statistics: Any = None,
    ) -> None:
        self.draws = finite("draws", draws, 2)
        n, d = self.draws.shape
        given = {"theta": (d,)} if variables is None else variables
        self.labels = {name: list(shape) for name, shape in given.items() if is_text(shape)}
        shapes = {name: (len(shape),) if name in self.labels else shape for name, shape in given.items()}
        self.variables = checked_variables(shapes, d)
        self.names = column_names(self.variables | self.labels)
        self.log_weights = None if log_weights is None else normalised(log_weights, n)
        if n_chains is not None and (
            isinstance(n_chains, bool) or not isinstance(n_chains, (int, np.integer))
        ):
            raise DataError(f"n_chains must be None or a whole number, got {shortened(n_chains)}")
        if n_chains is not None and (self.log_weights is not None or n_chains < 1 or n % n_chains):
            raise DataError(
                f"n_chains={n_chains} does not fit {n} {'weighted ' * (log_weights is not None)}draws: "
                "chains are equally long, and their draws have no weights"
            )
        self.n_chains = n_chains
        self.shard_draws = None
        if shard_draws is not None:
            self.shard_draws = finite("shard_draws", shard_draws, 4)
            if self.shard_draws.shape[3] > d:
                raise DataError(f"shard_draws have {self.shard_draws.shape[3]} parameters, the draws {d}")
        self.diagnostics = Diagnostics([]) if diagnostics is None else diagnostics
        self.method = method
        self._log_likelihood = log_likelihood
        made = None if statistics is None else np.asarray(statistics, dtype=np.float64)
        if made is not None and (n_chains is None or made.shape != (n, len(STATISTICS))):
            raise DataError(f"statistics must have the shape ({n}, {len(STATISTICS)}), and draws chains")
        self.statistics = made

    def __len__(self):
        return len(self.draws)

    def __repr__(self):
        kind = "weighted draws" if self.log_weights is not None else "draws"
        made = f" by {self.method}" * bool(self.method)
        return (
            f"Posterior of {', '.join(self.variables)}: {len(self)} {kind}{made}. {self.diagnostics.verdict}"
        )

    def keys(self) -> list[str]:
        """Names of the variables, so that ``dict(posterior)`` has their draws."""
        return list(self.variables)

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __contains__(self, name: object) -> bool:
        return name in self.variables or name in self.names

    def to_pandas(self) -> Any:
        """Return the draws as a DataFrame: a row a draw, a column for each entry of `names`.

        Returns
        -------
        pandas.DataFrame
            Indexed by chain and draw, or, of independent draws, by draw. Draws with weights have a last
            column ``"log_weight"``.

        Raises
        ------
        StradaskError
            If pandas is not installed.

        Examples
        --------
        >>> import numpy as np
        >>> from stradask.algorithms.bayes.posterior.draws import Posterior
        >>> posterior = Posterior(np.arange(6.0).reshape(3, 2), {"scale": (), "mean": ()})
        >>> posterior.to_pandas()["mean"].tolist()
        [1.0, 3.0, 5.0]
        """
        pd, n = pandas(), len(self.draws)
        index: Any = pd.RangeIndex(n, name="draw")
        if self.n_chains is not None:
            levels = [range(self.n_chains), range(n // self.n_chains)]
            index = pd.MultiIndex.from_product(levels, names=["chain", "draw"])
        frame = pd.DataFrame(self.draws, index=index, columns=self.names)
        return frame if self.log_weights is None else frame.assign(log_weight=self.log_weights)

    def __getitem__(self, name):
        """Draws of a variable, ``(n, *shape)``, or of one column by its name in `names`, ``(n,)``.

        Of weighted draws, which are not of the posterior as they stand, there are none: see `sample`.
        """
        if self.log_weights is not None:
            raise StradaskError(
                f"the draws of {shortened(name)} have weights, and without them are not of the posterior: "
                f"take sample()[{shortened(name)}] for draws that count alike, or draws together with weights"
            )
        if name in self.variables:
            return by_name(self.variables, self.draws)[name]
        if name in self.names:
            return self.draws[:, self.names.index(name)]
        raise DataError(f"there is no variable {shortened(name)}; there are {', '.join(self.variables)}")

    @property
    def log_evidence(self) -> tuple[float, float] | None:
        """Logarithm of the evidence (marginal likelihood), and its standard error; see ``sampler="smc"``.

        The evidence is the integral of the density as it is written: of likelihood times prior, if these hold
        their constants. Priors by name do, and regressions, but for flat priors. None where the sampler gives
        none.
        """
        found = {name: value for name, value, *_ in self.diagnostics.lines}
        if LOG_EVIDENCE not in found:
            return None
        return found[LOG_EVIDENCE], found[EVIDENCE_ERROR]

    # Summaries of the draws ---------------------------------------------------------------------------------

    @property
    def weights(self) -> Array:
        """Weights of the draws, (n,), which sum to one."""
        if self.log_weights is None:
            return np.full(len(self), 1 / len(self))
        return np.exp(self.log_weights)

    def mean(self) -> dict[str, Array]:
        """Means by variable."""
        return self._split(self.weights @ self.draws)

    def sd(self) -> dict[str, Array]:
        """Standard deviations by variable."""
        return self._split(np.sqrt(self._variances()))

    def quantile(self, q: float | Sequence[float]) -> dict[str, Array]:
        """Quantiles by variable, each ``(*shape)`` for a number q, ``(len(q), *shape)`` for several.

        Parameters
        ----------
        q : float or sequence of float
            Between 0 and 1.

        Returns
        -------
        dict of str to ndarray
        """
        return self._split(self._quantiles(quantile_levels("q", q)))

    def summary(self, quantiles: float | Sequence[float] = (0.05, 0.5, 0.95)) -> Table:
        """Describe every parameter in a line.

        Parameters
        ----------
        quantiles : float or sequence of float, default=(0.05, 0.5, 0.95)
            Between 0 and 1.

        Returns
        -------
        Table
            mean, sd, quantiles, ess and mcse of the mean, and r_hat. Of weighted draws ess is the variance
            over the square of mcse, ``mcse^2 = sum_i w_i^2 (x_i - mean)^2``; draws without weights or chains
            have those of how often each of them is there. r_hat is that of the chains, or the largest of the
            shards; empty where there are neither.
        """
        levels = np.atleast_1d(quantile_levels("quantiles", quantiles))
        variances = self._variances()
        sizes = self._sizes(variances)
        columns = {"mean": self.weights @ self.draws, "sd": np.sqrt(variances)}
        for level, row in zip(levels, self._quantiles(levels), strict=True):
            columns[f"{100 * level:g}%"] = row
        with np.errstate(divide="ignore", invalid="ignore"):
            columns |= {"ess": np.round(sizes), "mcse": np.sqrt(variances / sizes), "r_hat": self._rhat()}
        return Table(self.names, columns, self.diagnostics.verdict if len(self.diagnostics) else "")

    def _variances(self):
        return self.weights @ (self.draws - self.weights @ self.draws) ** 2

    def _quantiles(self, levels):
        if self.log_weights is None:
            return np.quantile(self.draws, levels, axis=0)
        return weighted_quantiles(self.draws, self.weights, levels)

    def _sizes(self, variances):
        if self.n_chains is not None and len(self) // self.n_chains >= 4:
            return ess(self._chains(), "mean")
        draws, weights = self.draws, self.weights
        if self.log_weights is None:  # resampled ones are there repeatedly
            draws, counts = np.unique(draws, axis=0, return_counts=True)
            weights = counts / len(self)
        with np.errstate(divide="ignore", invalid="ignore"):
            return variances / (weights**2 @ (draws - weights @ draws) ** 2)

    def _chains(self):
        return self.draws.reshape(self.n_chains, -1, self.draws.shape[1])

    def _rhat(self):
        if self.n_chains is not None and len(self) // self.n_chains >= 4:
            return split_rhat(self._chains())
        if self.shard_draws is not None and self.shard_draws.shape[2] >= 4:
            shared = np.max([split_rhat(shard) for shard in self.shard_draws], axis=0)
            return np.append(shared, np.full(self.draws.shape[1] - len(shared), np.nan))
        return np.full(self.draws.shape[1], np.nan)

    def _split(self, values):
        split = by_name(self.variables, values)
        return {name: value[()] for name, value in split.items()}

    # Draws for further use --------------------------------------------------------------------------------

    def sample(self, n: int | None = None, random_state: RandomState | None = None) -> dict[str, Array]:
        """Return draws that count alike, by variable.

        Parameters
        ----------
        n : int, optional
            How many, in random order; at most the draws there are. By default all, or of weighted draws as
            many as they are worth.
        random_state : int, RandomState or None

        Returns
        -------
        dict of str to ndarray of shape ``(n, *shape)``
        """
        return by_name(self.variables, self.draws[self._chosen(n, random_state)])

    def _chosen(self, n, random_state):
        most = len(self) if self.log_weights is None else max(int(importance_ess(self.log_weights)), 1)
        n = most if n is None else n
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 1 <= n <= len(self):
            raise DataError(
                f"n must be an integer between 1 and {len(self)}, the draws there are, got {shortened(n)}"
            )
        rng = np.random.Generator(np.random.Philox(check_random_state(random_state).randint(2**31)))
        if self.log_weights is None:
            return rng.permutation(len(self))[:n]
        return resample(self.log_weights, n, rng)

    def predictive(
        self, function: Callable[..., Any], n: int | None = None, random_state: RandomState | None = None
    ) -> Array:
        """Carry draws through a function: predictions, new data, any quantity that follows from parameters.

        Parameters
        ----------
        function : callable
            ``function(values, rng)`` with the draws of each variable, ``(n, *shape)``, as ``values["sigma"]``
            or ``values.sigma``, and a numpy.random.Generator for new data; returns an array (n, ...).
        n, random_state
            See `sample`.

        Returns
        -------
        ndarray of shape (n, ...)

        Examples
        --------
        >>> import numpy as np
        >>> from stradask.algorithms.bayes.posterior.draws import Posterior
        >>> posterior = Posterior(np.random.default_rng(0).normal(5, 1, (4000, 1)), {"mean": ()})
        >>> new = posterior.predictive(lambda v, rng: rng.normal(v["mean"], 1.0), random_state=0)
        >>> new.shape, round(new.var())
        ((4000,), 2)
        """
        values = self.sample(n, random_state)
        rng = np.random.Generator(np.random.Philox(check_random_state(random_state).randint(2**31)))
        made = np.asarray(function(NamedValues(values), rng))
        expected = len(next(iter(values.values())))
        if made.shape[:1] != (expected,):
            raise DataError(f"function must return one row for each of {expected} draws, got {made.shape}")
        return made

    def log_likelihood(self, n: int | None = None, random_state: RandomState | None = None) -> Array:
        """Return the log-likelihood of each observation under draws that count alike, (n, observations).

        Parameters
        ----------
        n, random_state
            See `sample`; the memory is n times the observations.

        Returns
        -------
        ndarray of shape (n, n_observations)

        Raises
        ------
        StradaskError
            If the posterior was made, or read from a file, without its likelihood.
        DataError
            If the likelihood is no sum over rows.
        """
        if self._log_likelihood is None:
            raise StradaskError(
                "this posterior does not know its likelihood (neither a file nor a pickle holds it): take "
                "log_likelihood(X, y) of the regression, or give log_likelihood to Posterior, or take "
                "predictive(function)"
            )
        return self.predictive(lambda values, _: self._log_likelihood(values), n, random_state)

    def to_arviz(
        self,
        n: int | None = None,
        random_state: RandomState | None = None,
        log_likelihood: Any = False,
        *,
        predictive: Any = False,
        observed: Any = None,
    ) -> Any:
        """Turn the draws into a DataTree for ArviZ (its plots, leave-one-out, netCDF).

        Parameters
        ----------
        n, random_state
            See `sample`: ArviZ knows no weights. Chains are handed on as they are where n is None.
        log_likelihood : bool, None, callable or array-like of shape (n_draws, n_observations), default=False
            Add the group of that name, for ``arviz_stats.loo``: what ``log_likelihood(X, y)`` of a regression
            returns, or True where the posterior knows its likelihood. A function of the draws by name,
            ``log_likelihood(values)``, returns (n, observations). False or None: no such group.
        predictive : bool or callable, default=False
            Add the group ``posterior_predictive``: ``predictive(values, rng)`` as in `predictive` returns an
            array (n, observations), or a dict of such. True where the posterior knows how (`BayesianGLM`).
        observed : array-like or dict of array-like, optional
            The group ``observed_data``; by default what the posterior knows.

        Returns
        -------
        xarray.DataTree

        Raises
        ------
        StradaskError
            If arviz-base is not installed.
        """
        from .arviz import tree_of

        return tree_of(self, n, random_state, log_likelihood, predictive, observed)

    # Files ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that a file holds, as a dict of arrays and plain values; `from_state` makes it whole."""
        return {
            "draws": self.draws,
            "variables": {n: self.labels.get(n, list(shape)) for n, shape in self.variables.items()},
            "log_weights": self.log_weights,
            "n_chains": self.n_chains,
            "shard_draws": self.shard_draws,
            "diagnostics": [
                [name, float(value), limit, int(level), words]
                for name, value, limit, level, words in self.diagnostics.lines
            ],
            "method": self.method,
            "statistics": self.statistics,
        }

    @classmethod
    def from_state(cls, state: Any) -> Self:
        """Make a posterior from what `state` returned.

        Raises
        ------
        ModelFileError
            If it makes no sense.
        """
        try:
            state = dict(state)
            diagnostics = Diagnostics([checked_line(*line) for line in state.pop("diagnostics")])
            variables = {name: shape_of(shape) for name, shape in state.pop("variables").items()}
            return cls(variables=variables, diagnostics=diagnostics, **state)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ModelFileError(f"holds a posterior that makes no sense: {error}") from error

    def save(self, path: FileName) -> Self:
        """Write the posterior into one npz file with a JSON header, without pickle.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        self
        """
        state = self.state()
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        plain = {name: value for name, value in state.items() if name not in arrays}
        write_npz(path, arrays, {"format": POSTERIOR_FORMAT, "format_version": _VERSION, "state": plain})
        return self

    @classmethod
    def load(cls, path: FileName) -> Self:
        """Read what `save` wrote.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        Posterior

        Raises
        ------
        ModelFileError
            If the file is damaged, of another kind, or of a newer format.
        """
        arrays, header = read_npz(path)
        if header.get("format") != POSTERIOR_FORMAT or not isinstance(header.get("state"), dict):
            raise ModelFileError(f"{path} is a file of stradask, but not a posterior")
        if header.get("format_version") != _VERSION:
            raise ModelFileError(
                f"{path} has the format version {shortened(header.get('format_version'))}, and stradask "
                f"{__version__} reads {_VERSION}: upgrade stradask"
            )
        try:
            return cls.from_state(header["state"] | arrays)
        except ModelFileError as error:
            raise ModelFileError(f"{path} {error}") from error

    # Pictures ---------------------------------------------------------------------------------------------

    def plot(self, kind: str = "marginals", names: str | Names | None = None, axes: Any = None) -> list[Any]:
        """Draw marginals of shards and combination, traces, or rank plots.

        Parameters
        ----------
        kind : {"marginals", "trace", "rank"}, default="marginals"
            Densities of each shard (thin) and of the posterior (thick); draws in their order; histograms of
            ranks, one a chain, which are level where chains agree. The last two show the chains, or those of
            shards.
        names : str or sequence of str, optional
            Columns; by default the first ones, 12 at most.
        axes : sequence of matplotlib Axes, optional
            One a name.

        Returns
        -------
        list of matplotlib Axes
        """
        from .plots import plot_posterior

        return plot_posterior(self, kind, names, axes)
