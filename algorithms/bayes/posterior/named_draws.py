"""Draws by name, as a mapping of variables and as a table."""

from collections.abc import Iterator
from typing import Any

from ...._typing import Array
from ..._table import pandas


class NamedValues(dict[str, Array]):
    """Values by name, which are attributes as well: ``values["sigma"]`` is ``values.sigma``."""

    def __getattr__(self, name: str) -> Array:
        if name in self:
            return self[name]
        raise AttributeError(f"there is no variable {name!r}; there are {', '.join(self)}")


class NamedDraws:
    """What a posterior has as a mapping of variables to draws, and as a DataFrame."""

    draws: Array
    variables: dict[str, tuple[int, ...]]
    names: list[str]
    n_chains: Any
    log_weights: Array | None

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
