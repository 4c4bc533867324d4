"""Dense layers split over places: OneFlow's signatures, chosen by a dynamic program over the chain.

A matrix is split by rows (``S0``), by columns (``S1``), a full copy on every place (``B``), or a sum of
partial ones (``P``). A layer computes ``y = x W`` in one of four ways. Bytes travel where its output has
another form than the next layer needs, forward and backward.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError, shortened
from ..parameters import check_count, check_weights, numbers_of
from .costs import Link, as_link
from .timeline import columns


class Signature(NamedTuple):
    """How a layer is computed: the forms of x, W and y, and those of dy and dx in the backward pass."""

    name: str
    x: str
    w: str
    y: str
    dy: str
    dx: str


SIGNATURES = (
    Signature("data", "S0", "B", "S0", "S0", "S0"),  # dW is partial: all-reduced
    Signature("column", "B", "S1", "S1", "S1", "P"),
    Signature("row", "S1", "S0", "P", "B", "S1"),
    Signature("copy", "B", "B", "B", "B", "B"),
)


def moved(have: str, want: str, nbytes: float, p: int) -> float:
    """Return the bytes that all p places together send to turn a matrix from one form into another.

    Examples
    --------
    >>> from stradask.scheduler.planning import moved
    >>> moved("S0", "B", 100.0, 4), moved("P", "B", 100.0, 4), moved("S0", "S1", 100.0, 4)
    (300.0, 600.0, 75.0)
    """
    if have == want or have == "B":
        return 0.0
    if have == "P":
        return (2 if want == "B" else 1) * (p - 1) * nbytes
    return (p - 1) * nbytes if want == "B" else (p - 1) / p * nbytes


@dataclass(frozen=True)
class LayerSplit:
    """How each layer of a chain is split.

    Attributes
    ----------
    signatures : tuple of str
        Of each layer: ``"data"``, ``"column"``, ``"row"`` or ``"copy"``.
    seconds : float
        Of a step: computing and travelling.
    compute, travel : tuple of float
        Seconds of each layer; travelling is that of its input, of the gradient of that, and of ``dW``. The
        output's way to the loss is in the last.
    nbytes : tuple of float
        What travels for each layer, of all places together.
    """

    signatures: tuple[str, ...]
    seconds: float
    compute: tuple[float, ...]
    travel: tuple[float, ...]
    nbytes: tuple[float, ...]

    def table(self) -> str:
        """Return the layers as plain text."""
        lines = [["layer", "split", "compute", "travel", "MB"]]
        for i, (name, seconds, way, nbytes) in enumerate(
            zip(self.signatures, self.compute, self.travel, self.nbytes, strict=True)
        ):
            lines.append([str(i), name, f"{1e3 * seconds:.2f}", f"{1e3 * way:.2f}", f"{nbytes / 1e6:.2f}"])
        return f"{columns(lines)}\nmilliseconds; MB sent by all places"


def split_layers(
    compute: Any,
    widths: Any,
    n_places: int,
    link: Link,
    *,
    batch_size: int,
    itemsize: int = 4,
    data: str = "S0",
) -> LayerSplit:
    """Choose for each dense layer of a chain whether its rows, columns or inputs are split over places.

    "data" splits the rows of the batch and sums gradients. "column" and then "row" split the weights of two
    layers, so that the activations between them never travel (COTS HPC). "copy" computes the same
    everywhere. A dynamic program finds the cheapest combination. Activation functions are not linear, so
    partial sums are added up before them.

    Parameters
    ----------
    compute : array-like of shape (n_layers,)
        Seconds of each whole layer, forward and backward, on one place.
    widths : array-like of shape (n_layers + 1,)
        Columns of the input and of each layer's output.
    n_places : int
    link : Link
        Between two places. They all send at the same time.
    batch_size : int
        Rows.
    itemsize : int, default=4
        Bytes of a number.
    data : {"S0", "B"}, default="S0"
        Whether places begin with different rows, or each with all.

    Returns
    -------
    LayerSplit

    References
    ----------
    Coates, Huval, Wang, Wu, Catanzaro, Ng, "Deep learning with COTS HPC systems", ICML 2013.

    Yuan, Li, Cheng, Liu, Guo, Cai, Yao, Yang, Yi, Wu, Zhang, Zhao, "OneFlow: redesign the distributed deep
    learning framework from scratch", arXiv:2110.15032, 2021.

    Examples
    --------
    Many weights and few rows: two layers are split, and their weights stay where they are.

    >>> from stradask.scheduler.planning import Link, split_layers
    >>> split_layers([0.1, 0.1], [4096, 16384, 4096], 4, Link(), batch_size=16).signatures
    ('column', 'row')
    >>> split_layers([0.1, 0.1], [64, 64, 64], 4, Link(1e-5), batch_size=65536).signatures
    ('data', 'data')
    """
    p, rows = check_count("n_places", n_places), check_count("batch_size", batch_size)
    check_count("itemsize", itemsize)
    sizes = numbers_of("widths", widths)
    if sizes.ndim != 1 or len(sizes) < 2 or not (np.isfinite(sizes) & (sizes >= 1)).all():
        raise DataError(f"widths must be two or more numbers of columns from 1, got {shortened(widths)}")
    seconds = check_weights("compute", compute, len(sizes) - 1)
    if data not in ("S0", "B"):
        raise DataError(f"data must be 'S0' or 'B', got {shortened(data)}")
    chain = _Chain(seconds, sizes, p, as_link(link), rows * itemsize, itemsize)
    best: dict[Any, tuple] = {
        None: (0.0, ())
    }  # by the signature of the last layer: seconds and signatures of all before
    for layer in range(len(seconds)):
        best = {
            new: min(
                (total + sum(chain.cost(layer, old, new, data)[:2]), (*path, new))
                for old, (total, path) in best.items()
            )
            for new in SIGNATURES
        }
    _, path = min((total + chain.out(last)[0], way) for last, (total, way) in best.items())
    return chain.split(path, data)


class _Chain:
    """Costs along the chain."""

    def __init__(self, seconds, sizes, p, link, column, itemsize):
        self.seconds, self.sizes, self.p, self.link = seconds, sizes, p, link
        self.column, self.itemsize = column, itemsize  # bytes of a column of activations, and of a number

    def way(self, have, want, nbytes):
        """Seconds and bytes of one conversion; each place sends its part of the bytes."""
        total = moved(have, want, nbytes, self.p)
        if not total:
            return np.zeros(2)
        messages = (2 if (have, want) == ("P", "B") else 1) * (self.p - 1)
        each = messages * (self.link.latency + 2 * self.link.cpu)
        return np.array([each + (1 if self.link.duplex else 2) * total / self.p / self.link.bandwidth, total])

    def cost(self, layer, old, new, data):
        """Seconds of computing and of travelling of a layer after another one (None: the data), and bytes."""
        before = self.sizes[layer] * self.column
        way = self.way(data if old is None else old.y, new.x, before)
        if old is not None:  # the data have no gradient
            way = way + self.way(new.dx, old.dy, before)
        if new.name == "data":
            way = way + self.way("P", "B", self.sizes[layer] * self.sizes[layer + 1] * self.itemsize)
        return self.seconds[layer] / (1 if new.name == "copy" else self.p), *way

    def out(self, last):
        """Seconds and bytes of the last output's way to the loss, in rows or copies, and back."""
        after = self.sizes[-1] * self.column
        ways = (self.way(last.y, form, after) + self.way(form, last.dy, after) for form in ("S0", "B"))
        return min(ways, key=lambda way: way[0])

    def split(self, path, data):
        """Return the result for a choice of signatures."""
        costs = np.array(
            [
                self.cost(i, old, new, data)
                for i, (old, new) in enumerate(zip((None, *path), path, strict=False))
            ]
        )
        costs[-1, 1:] += self.out(path[-1])
        names, (compute, travel, nbytes) = tuple(s.name for s in path), map(tuple, costs.T.tolist())
        return LayerSplit(names, float(costs[:, :2].sum()), compute, travel, nbytes)
