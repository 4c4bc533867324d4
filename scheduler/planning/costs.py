"""What layers and links cost: the input of the planner."""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError, shortened
from ..parameters import check_count, numbers_of


@dataclass(frozen=True)
class Link:
    """The way between two places.

    Parameters
    ----------
    latency : float, default=1e-3
        Seconds that a message takes whatever its size.
    bandwidth : float, default=1e9
        Bytes a second.
    cpu : float, default=0.0
        Seconds of computing that a message costs each of its two places.
    sum_bandwidth : float, optional
        Bytes a second in an all-reduce, where each place copies and adds them, too; `bandwidth` by default.
    duplex : bool, default=True
        Whether a place sends and receives at the same time, each at full bandwidth. PipeDream's cost model
        has links that do not.

    Examples
    --------
    >>> from stradask.scheduler.planning import Link
    >>> link = Link(latency=0.001, bandwidth=1e9)
    >>> round(link.seconds(1e6), 6), round(link.all_reduce(64e6, 2), 6)
    (0.002, 0.066)
    """

    latency: float = 1e-3
    bandwidth: float = 1e9
    cpu: float = 0.0
    sum_bandwidth: float | None = None
    duplex: bool = True

    def __post_init__(self) -> None:
        for name in ("latency", "cpu"):
            value = getattr(self, name)
            if not (is_number(value) and 0 <= value < np.inf):
                raise DataError(f"{name} must be a finite number of seconds from 0, got {shortened(value)}")
        for name in ("bandwidth", "sum_bandwidth"):
            value = getattr(self, name)
            if not (is_number(value) and value > 0) and (name, value) != ("sum_bandwidth", None):
                raise DataError(f"{name} must be a number above 0, in bytes a second, got {shortened(value)}")

    def seconds(self, nbytes: float) -> float:
        """Return the seconds of one message."""
        return self.latency + nbytes / self.bandwidth

    def all_reduce(self, nbytes: float, n: int) -> float:
        """Return the seconds in which n replicas sum a vector, as the schedule of pipelines does.

        Powers of two halve and double (`2 log2(n)` messages, ``2 (n - 1) / n`` of the vector), others sum in
        a tree whose messages are whole vectors.
        """
        if n == 1:
            return 0.0
        levels = (n - 1).bit_length()
        moved = 2 * levels if n & (n - 1) else 2 * (n - 1) / n
        return self._sum(2 * levels, moved * nbytes)

    def ring(self, nbytes: float, n: int) -> float:
        """Return the seconds of a ring of n places: ``2 (n - 1)`` messages of ``nbytes / n``."""
        return self._sum(2 * (n - 1), 2 * (n - 1) / n * nbytes)

    def _sum(self, messages, moved):
        speed = self.bandwidth if self.sum_bandwidth is None else self.sum_bandwidth
        return messages * (self.latency + 2 * self.cpu) + (1 if self.duplex else 2) * moved / speed


class LayerPair(NamedTuple):
    """Two dense layers with nothing but activations between them: places can share their hidden units.

    Attributes
    ----------
    first, last : int
        Numbers of the two layers.
    widths : tuple of int
        Inputs of the first, its hidden units, outputs of the second.
    """

    first: int
    last: int
    widths: tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Profile:
    """Seconds and bytes of each layer of a net, measured where it will run.

    Parameters
    ----------
    forward, backward : array-like of shape (n_layers,) or (n_layers, n_row_counts)
        Seconds of a pass over `rows` rows, for each number of rows that was measured.
    activation_bytes : array-like of shape (n_layers,)
        Bytes a row of each layer's output, which travel where the net is cut after it.
    parameter_bytes : array-like of shape (n_layers,)
        Bytes of its parameters.
    rows : int or sequence of int, default=1
        The numbers of rows that were measured, rising. Between two of them seconds are interpolated, and
        extrapolated beyond; with one number they are in proportion to the rows.
    update : array-like of shape (n_layers,), optional
        Seconds in which the optimizer changes the parameters, once a step; 0 by default.
    context_bytes : array-like of shape (n_layers,), optional
        Bytes a row that a layer keeps for its backward pass; `activation_bytes` by default.
    state_copies : float, default=1.0
        Memory of the optimizer in units of the parameters: 0 for plain gradient descent, 1 with momentum, 2
        for Adam.
    input_bytes : float, default=0.0
        Bytes a row of the data, for the memory of the first stage.
    names : sequence of str, optional
        Of the layers, for tables.
    pair : LayerPair, optional
        Two dense layers that ``plan="auto"`` may split over places.

    Examples
    --------
    Two layers, measured with 64 and 512 rows; 256 rows take

    >>> from stradask.scheduler.planning import Profile
    >>> profile = Profile([[1.0, 4.5], [2.0, 9.0]], [[2.0, 9.0], [4.0, 18.0]], [400, 40], [1e6, 1e5],
    ...                   rows=[64, 512])
    >>> forward, backward = profile.seconds(256)
    >>> forward.tolist(), backward.tolist()
    ([2.5, 5.0], [5.0, 10.0])
    """

    forward: Any
    backward: Any
    activation_bytes: Any
    parameter_bytes: Any
    rows: Any = 1
    update: Any = None
    context_bytes: Any = None
    state_copies: float = 1.0
    input_bytes: float = 0.0
    names: Any = None
    pair: LayerPair | None = None

    def __post_init__(self) -> None:
        rows = [check_count("rows", count) for count in np.atleast_1d(np.asarray(self.rows, object))]
        if any(a >= b for a, b in itertools.pairwise(rows)) or not rows:
            raise DataError(f"rows must be rising numbers of rows, got {shortened(self.rows)}")
        forward = _table("forward", self.forward, len(rows))
        n_layers = len(forward)
        if not n_layers:
            raise DataError("forward has no layers; give the seconds of at least one")
        backward = _table("backward", self.backward, len(rows), n_layers)
        bytes_ = _vector("activation_bytes", self.activation_bytes, n_layers)
        context = bytes_ if self.context_bytes is None else self.context_bytes
        names = [f"layer {i}" for i in range(n_layers)] if self.names is None else list(map(str, self.names))
        if len(names) != n_layers:
            raise DataError(f"names must be {n_layers}, one for each layer, got {len(names)}")
        for name, value in (("state_copies", self.state_copies), ("input_bytes", self.input_bytes)):
            if not (is_number(value) and 0 <= value < np.inf):
                raise DataError(f"{name} must be a finite number from 0, got {shortened(value)}")
        values = {
            "rows": tuple(rows),
            "forward": forward,
            "backward": backward,
            "activation_bytes": bytes_,
            "parameter_bytes": _vector("parameter_bytes", self.parameter_bytes, n_layers),
            "update": _vector("update", np.zeros(n_layers) if self.update is None else self.update, n_layers),
            "context_bytes": _vector("context_bytes", context, n_layers),
            "names": tuple(names),
            "pair": _pair(self.pair, n_layers),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.parameter_bytes)

    def seconds(self, rows: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds of each layer's forward and backward pass over so many rows."""
        return _at(self.rows, self.forward, rows), _at(self.rows, self.backward, rows)


def _at(known, seconds, rows):
    if len(known) == 1:
        return seconds[:, 0] * (rows / known[0])
    right = int(np.clip(np.searchsorted(known, rows), 1, len(known) - 1))
    share = (rows - known[right - 1]) / (known[right] - known[right - 1])
    return np.maximum(seconds[:, right - 1] * (1 - share) + seconds[:, right] * share, 0.0)


def _pair(given, n_layers):
    if given is None:
        return None
    try:
        first, last, widths = given
        n_in, n_hidden, n_out = (check_count("widths of the pair", n) for n in widths)
        inside = 0 <= first < last < n_layers
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"pair must be (first, last, (n_in, n_hidden, n_out)), got {shortened(given)}"
        ) from error
    if not inside:
        raise DataError(f"pair must name two layers of {n_layers}, got {first} and {last}")
    return LayerPair(first, last, (n_in, n_hidden, n_out))


def as_link(link):
    """Return a Link, the usual one for None; refuse anything else."""
    if not isinstance(link, Link | None):
        raise DataError(f"link must be a Link of stradask.scheduler.planning, got {shortened(link)}")
    return Link() if link is None else link


def is_number(value):
    """Return whether a value is a real number, and no truth value."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _vector(name, values, n_layers):
    values = numbers_of(name, values)
    if values.shape != (n_layers,):
        raise DataError(f"{name} must be {n_layers} numbers, one for each layer, got shape {values.shape}")
    return _checked(name, values)


def _table(name, values, n_counts, n_layers=None):
    values = numbers_of(name, values)
    if values.ndim == 1 and n_counts == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != n_counts or n_layers not in (None, len(values)):
        wanted = "layers" if n_layers is None else f"{n_layers} layers"
        raise DataError(
            f"{name} must be seconds of {wanted} for each of {n_counts} numbers of rows, got shape "
            f"{values.shape}"
        )
    return _checked(name, values)


def _checked(name, values):
    if not (np.isfinite(values) & (values >= 0)).all():
        raise DataError(f"{name} must be finite and not negative; measure the layers again")
    return values
