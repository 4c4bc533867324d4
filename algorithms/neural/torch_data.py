"""Data sets of torch, and functions that make batches, as rows for the training program.

The items of a map-style data set are read where they are used, anew in each epoch. Batches are read once,
and their rows are held in memory.
"""

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import DataError, in_brief, shortened
from ...scheduler.tasks import check_ships
from .._streams import Purpose
from ..inputs.memory import machine_memory
from ..inputs.pieces import check_same, checksum, is_lazy
from .training.torch_stage import import_torch, seeded

_SPAN = 1024  # items that one task surveys
_ROWS = 1024  # that are collated of an IterableDataset at once


# Which form is it? ---------------------------------------------------------------------------------


def as_data(X):
    """Return an object of `torch.utils.data`, or functions that make batches, as `Items` or `Sources`.

    Tensors of a TensorDataset are returned as they are, in a tuple of arrays. Anything else is None.
    """
    if is_lazy(X) or isinstance(X, np.ndarray):
        return None
    known = sys.modules.get("torch") is not None
    if known and isinstance(X, _torch_data().DataLoader):
        X = _of_loader(X)
    if isinstance(X, _Sources | Items):
        return X
    if known and isinstance(X, _torch_data().Dataset):
        if isinstance(X, _torch_data().IterableDataset):
            return _Sources([_torch_data().DataLoader(X, batch_size=_ROWS)])
        return _tensors(X) or Items.of(X)
    if type(X) in (list, tuple) and X and all(map(callable, X)):
        return _Sources(list(X))
    return _Sources([X]) if callable(X) or hasattr(X, "__next__") else None


def _torch_data():
    import_torch()
    from torch.utils import data

    return data


def _of_loader(loader):
    """Return the data set of a loader; one with rows of its own making is refused."""
    data = _torch_data()
    if isinstance(loader.dataset, data.IterableDataset):
        return _Sources([loader])
    sampler, whole = loader.sampler, type(loader.batch_sampler) in (data.BatchSampler, type(None))
    if isinstance(sampler, data.RandomSampler):
        whole = whole and not sampler.replacement and sampler.num_samples == len(loader.dataset)
    plain = whole and type(sampler) in (data.SequentialSampler, data.RandomSampler)
    if not plain or loader.collate_fn not in (data.default_collate, data.default_convert):
        raise DataError(
            "X is a DataLoader with a sampler, batch_sampler or collate_fn of its own, but mini-batches are "
            "made by batch_size and random_state: pass its dataset, or `lambda: loader` to read its batches "
            "once"
        )
    return loader.dataset


def _tensors(dataset):
    """Return the arrays of a TensorDataset, also of subsets of one; None for other data sets."""
    data, chosen = _torch_data(), []
    while type(dataset) is data.Subset:
        chosen.append(np.asarray(dataset.indices, np.int64))
        dataset = dataset.dataset
    if type(dataset) is not data.TensorDataset:
        return None
    arrays = tuple(map(_array, dataset.tensors))
    for index in reversed(chosen):
        arrays = tuple(array[index] for array in arrays)
    return arrays


def _array(value):
    """Return a tensor, or what numpy knows, as an array."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    value = value.detach().cpu()
    torch = import_torch()
    wide = value.is_floating_point() and value.dtype not in (torch.float32, torch.float64)
    return (value.float() if wide else value).numpy()


# Map-style data sets -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Items:
    """Rows of a map-style data set, which are read when they are used: ``read``, or as an array.

    Indexing returns rows that are not read yet.
    """

    dataset: Any
    index: np.ndarray
    row_shape: tuple
    dtype: np.dtype

    @classmethod
    def of(cls, dataset):
        """Take all items; the first one tells the shape."""
        if not hasattr(dataset, "__len__"):
            raise DataError(
                f"X is a {type(dataset).__name__} without a length: give it __len__, or make it an "
                "IterableDataset"
            )
        if not len(dataset):
            raise DataError("X is a data set without items")
        with seeded(Purpose.TORCH_SURVEY.value, 0):
            first, _ = _item(dataset, 0)
        return cls(dataset, np.arange(len(dataset)), first.shape, first.dtype)

    @property
    def shape(self):
        """As of an array."""
        return len(self.index), *self.row_shape

    @property
    def ndim(self):
        """As of an array."""
        return len(self.shape)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, part):
        if type(part) is tuple:  # scikit-learn indexes by (rows, ...)
            part, *_ = part
        return replace(self, index=self.index[part])

    def astype(self, dtype, copy=False):
        """Return the rows in another type."""
        return replace(self, dtype=np.dtype(dtype))

    def __array__(self, dtype=None, copy=None):
        rows = self.read((0,))
        return rows if dtype is None else rows.astype(dtype)

    def read(self, key):
        """Read the rows; random transforms draw from a generator of these integers."""
        rows = np.empty(self.shape, self.dtype)
        with seeded(Purpose.TORCH_READ.value, *key):
            for row, number in zip(rows, self.index.tolist(), strict=True):
                x, _ = _item(self.dataset, number)
                if x.shape != row.shape:
                    raise DataError(
                        f"item {number} of X has the shape {x.shape}, but item 0 has {self.row_shape}"
                    )
                row[...] = x
        return rows

    def survey(self, place, has_targets):
        """Read all items once where there are threads or workers; return targets, or None, and a checksum.

        Values that are not finite, and other shapes than the first item's, are refused.
        """
        edges = range(0, len(self), _SPAN)
        if place.remote:
            check_ships("X", self.dataset)
        with place.tasks([self], name="X") as tasks:
            found = tasks.map(_surveyed, [(0, first, first + _SPAN, has_targets) for first in edges])
        targets = None if has_targets else _joined_targets([y for ys, _ in found for y in ys])
        return targets, checksum([crc for _, crc in found])


def _item(dataset, number):
    """Read an item: x as floats, and y, or None where there is none."""
    try:
        item = dataset[number]
    except Exception as error:  # of the caller's data set
        raise DataError(f"item {number} of X cannot be read: {in_brief(repr(error))}") from error
    x, y = _pair(item, f"item {number} of X")
    return _floats(x, f"item {number} of X"), y


def _pair(item, name):
    if not isinstance(item, tuple | list):
        if hasattr(item, "dtype"):
            return item, None
        raise DataError(
            f"{name} is a {type(item).__name__}: it must be (x, y), or an array x where y is given"
        )
    if len(item) != 2:
        raise DataError(f"{name} has {len(item)} parts: it must be (x, y), or x alone where y is given")
    return item


def _floats(x, name):
    if not hasattr(x, "dtype") and not isinstance(x, float | list | tuple):
        raise DataError(f"x of {name} is a {type(x).__name__}: give the data set a transform to tensors")
    x = _array(x)
    if x.dtype.kind != "f":
        raise DataError(
            f"x of {name} holds {x.dtype}, and floating-point numbers are needed: let the data set return "
            "x.float(), quantities scaled to about 1; numbers of tokens as they are, for a module that "
            "begins with x.long() before its nn.Embedding"
        )
    return x


def _surveyed(items, first, last, has_targets):
    """Read a span of items; return their targets, and a checksum of all."""
    found, crc = [], []
    with seeded(Purpose.TORCH_SURVEY.value, first):
        for number in items.index[first:last].tolist():
            x, y = _item(items.dataset, number)
            if x.shape != items.row_shape:
                raise DataError(
                    f"item {number} of X has the shape {x.shape}, but item 0 has {items.row_shape}"
                )
            if not np.isfinite(x).all():
                raise DataError(f"item {number} of X contains NaN or infinity")
            if (y is None) != has_targets:
                has = "is x alone: pass y, or let items be (x, y)"
                raise DataError(
                    f"item {number} of X {has if y is None else 'has its own y: leave the argument y out'}"
                )
            found.append(None if y is None else _target(y))
            crc.append(checksum(x))
    return found, checksum([*crc, *(() if has_targets else found)])


def _target(y):
    if hasattr(y, "detach"):
        y = _array(y)
    return y.item() if isinstance(y, np.ndarray | np.generic) and not np.ndim(y) else y


def _joined_targets(targets):
    try:
        return np.array(targets)
    except ValueError as error:
        raise DataError(f"y of the items of X has several shapes: {in_brief(error)}") from error


# Batches -------------------------------------------------------------------------------------------


class _Sources:
    """Iterables of batches (x, y), or functions that return one; their rows follow one another."""

    def __init__(self, sources):
        self.sources = sources

    def rows(self, place):
        """Return X, y and a checksum (None where X is an array).

        Functions are called on the workers, if there are any: X is a Dask array then, and each function is
        called again when its rows are loaded.
        """
        if not place.remote or not all(map(_is_made_there, self.sources)):
            parts = [_collected(source, number) for number, source in enumerate(self.sources)]
            _check_alike([x.shape[1:] for x, _ in parts])
            return np.concatenate([x for x, _ in parts]), _joined_rows([y for _, y in parts]), None
        import dask
        import dask.array as da

        check_ships("X", self.sources)
        with place.tasks([_Source(*pair) for pair in enumerate(self.sources)], name="X") as tasks:
            found = tasks.map(_Source.survey, [(number,) for number in range(len(self.sources))])
        _check_alike([shape[1:] for shape, *_ in found])
        blocks = [
            da.from_delayed(dask.delayed(_read_again, pure=False)(_Source(number, source), crc), shape, dtype)
            for number, (source, (shape, dtype, _, crc)) in enumerate(zip(self.sources, found, strict=True))
        ]
        y = _joined_rows([y for _, _, y, _ in found])
        return da.concatenate(blocks), y, checksum([crc for *_, crc in found])


@dataclass(frozen=True)
class _Source:
    number: int
    made: Any

    def survey(self):
        """Return shape and type of the rows, their targets, and a checksum of both."""
        x, y = _collected(self.made, self.number)
        return x.shape, x.dtype, y, checksum((x, y))


def _read_again(source, crc):
    x, y = _collected(source.made, source.number)
    check_same(checksum((x, y)), crc, f"function {source.number} of X gave other batches than before")
    return x


def _is_made_there(source):
    return callable(source) or not hasattr(source, "__next__")


def _collected(source, number):
    """Read all batches of a source; return their rows and targets."""
    xs: list[np.ndarray] = []
    ys: list[np.ndarray] = []
    n_bytes, limit = 0, _memory_limit()
    with seeded(Purpose.TORCH_COLLECT.value, number):
        for x, y in _batches(source, number):
            if xs and x.shape[1:] != xs[0].shape[1:]:
                raise DataError(
                    f"rows of batch {len(xs)} of X have the shape {x.shape[1:]}, those before "
                    f"{xs[0].shape[1:]}"
                )
            xs.append(x)
            ys.append(y)
            n_bytes += x.nbytes + y.nbytes
            if n_bytes > limit:
                raise DataError(
                    f"X gave {len(xs)} batches, {n_bytes / 2**20:.0f} MiB, more than the memory there is: do "
                    "they end? Rows are held in memory; a map-style data set is read batch by batch"
                )
    if not xs:
        raise DataError(
            "X gave no batches: an iterator is read once; for several fits pass a function that makes it anew"
        )
    return np.concatenate(xs), _joined_rows(ys)


def _batches(source, number):
    """Yield the batches of a source as arrays, checked."""
    name = "X" if not callable(source) else f"function {number} of X"
    try:
        batches = iter(source() if callable(source) else source)
    except Exception as error:  # of the caller's function
        raise DataError(f"{name} makes no iterable of batches: {in_brief(repr(error))}") from error
    at = 0
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except Exception as error:
            raise DataError(f"batch {at} of {name} cannot be read: {in_brief(repr(error))}") from error
        x, y = _pair(batch, f"batch {at} of {name}")
        if y is None:
            raise DataError(f"batch {at} of {name} is x alone: it must be (x, y)")
        x, y = _floats(x, f"batch {at} of {name}"), _array(y)
        if x.ndim < 2 or not y.ndim or len(x) != len(y):
            raise DataError(
                f"batch {at} of {name} has x of the shape {x.shape} and y of {y.shape}: both need a row for "
                "each sample"
            )
        if not np.isfinite(x).all():
            raise DataError(f"batch {at} of {name} contains NaN or infinity")
        yield x, y
        at += 1


def _joined_rows(parts):
    kinds = {part.dtype.kind in "OSU" for part in parts}
    if len(kinds) > 1 or len({part.shape[1:] for part in parts}) > 1:
        raise DataError("y of the batches of X has several types or shapes: make them alike")
    return np.concatenate(parts)


def _check_alike(shapes):
    if len(set(shapes)) > 1:
        raise DataError(f"the functions of X give rows of several shapes: {shortened(sorted(set(shapes)))}")


def _memory_limit():
    """Return the bytes of this worker's memory, or of this machine's; infinity where they are not known."""
    if "distributed" in sys.modules:
        import distributed

        try:
            return distributed.get_worker().memory_manager.memory_limit or np.inf
        except ValueError:  # in no task
            pass
    return machine_memory()
