"""Groups of rows that have an intercept each: their labels, which shard each goes to, new rows.

For the intercepts in the density, and how they are drawn, see ``kernels.bayes.densities.groups``.
"""

import numpy as np

from ....errors import DataError, shortened
from ...inputs.matrices import check_text

LEAST_GROUPS = 20  # of a shard, if "auto" chooses how many: fewer say little of their spread
_STEP, _STEPS, _REACH = 0.6, 2000, 7.0  # of sums over new groups: standard deviations
_KINDS = dict.fromkeys("biuf", "numbers") | dict.fromkeys("UO", "text") | {"M": "times"}


def check_groups(groups, n_samples):
    """Check the label of each row's group; returns an array of numbers, times, or Python strings.

    Raises a DataError for another length or shape, missing labels, and labels of different kinds.
    """
    if isinstance(groups, np.ma.MaskedArray) and np.ma.is_masked(groups):  # pandas has masks of its own
        row = np.argwhere(np.ma.getmaskarray(groups))[0][0]
        raise DataError(f"groups masks row {row}: give the row a label, a group of its own, or drop it")
    check_text("groups", groups)
    labels = np.asarray(groups)
    if labels.ndim == 2 and 1 in labels.shape:  # the column of a DataFrame
        labels = labels.ravel()
    if labels.shape != (n_samples,):
        raise DataError(
            f"groups has the shape {labels.shape}, but X has {n_samples} rows: give each row a label"
        )
    if labels.dtype.kind == "O":
        missing = [type(value).__name__ in _MISSING or value != value for value in labels]
        _refuse_missing(np.array(missing), labels)
        if not all(isinstance(value, str) for value in labels):
            labels = _plain(labels)
    if labels.dtype.kind not in _KINDS:
        raise DataError(f"groups holds labels of the type {labels.dtype}: give numbers, text or times")
    if labels.dtype.kind in "fM":
        _refuse_missing(np.isnan(labels) if labels.dtype.kind == "f" else np.isnat(labels), labels)
    return labels.astype(object) if labels.dtype.kind == "U" else labels


_MISSING = ("NoneType", "NAType", "NaTType")


def _refuse_missing(missing, labels):
    if missing.any():
        row = np.flatnonzero(missing)[0]
        raise DataError(
            f"groups holds {labels[row]} in row {row}: give the row a label, a group of its own, or drop it"
        )


def _plain(labels):
    """An array of Python objects that are not all text, as one of numbers or times."""
    kinds = sorted({type(value).__name__ for value in labels})
    try:
        plain = np.array(labels.tolist())
    except ValueError:
        plain = labels
    if plain.ndim != 1 or plain.dtype.kind not in "biufM" or "str" in kinds:
        raise DataError(
            f"groups holds labels of the types {', '.join(kinds)}: give all of them as text, or as numbers"
        )
    return plain


def code_groups(labels, family, weights=None):
    """Number the groups of a fit; returns their labels, sorted, and the number of each row.

    `weights` are of rows: a single row of weight 2 is two rows. Raises a DataError for a single group, and
    for as many as rows where that leaves nothing to tell groups by.
    """
    names, numbers = np.unique(labels, return_inverse=True)
    check_enough(names, len(labels), is_counted(family, weights))
    return names, numbers.astype(np.int64)


def is_counted(family, weights):
    """Whether a row may be several observations, by which a group of one row can be told from noise."""
    return family == "poisson" or (
        family == "bernoulli" and weights is not None and bool((weights > 1).any())
    )


def check_enough(names, n_rows, counted):
    """Refuse a single group, and as many as rows where that leaves nothing to tell groups by."""
    if len(names) < 2:
        raise DataError(
            f"groups holds one group, {shortened(names.tolist()[0])}, whose intercept cannot be told from "
            "the common one: leave groups out"
        )
    if len(names) == n_rows and not counted:
        raise DataError(
            f"groups holds {len(names)} groups for {n_rows} rows: intercepts of single rows cannot be "
            "told from noise; give groups of several rows, or leave groups out"
        )


def join_groups(parts, shards):
    """Join the groups' labels of several shards, each sorted; returns all, sorted.

    A DataError names the `shards` that share a group, or have labels of other kinds.
    """
    kinds = [_KINDS[part.dtype.kind] for part in parts]
    for kind, shard in zip(kinds, shards, strict=True):
        if kind != kinds[0]:
            raise DataError(
                f"groups are {kinds[0]} in {shards[0]}, {kind} in {shard}: give labels of one kind"
            )
    names, counts = np.unique(np.concatenate(parts), return_counts=True)
    if (counts > 1).any():
        name = names[counts > 1][0]
        first, second = [shard for part, shard in zip(parts, shards, strict=True) if (part == name).any()][:2]
        raise DataError(
            f"group {name!s} lies in {first} and in {second}: a shard draws the intercepts of its groups "
            "alone, so put all rows of a group into one shard"
        )
    return names


def text_of(names):
    """Return labels as text, by which draws are called."""
    return [str(name) for name in names.tolist()] if names.dtype.kind != "M" else names.astype(str).tolist()


def find_groups(labels, names):
    """Number the groups of new rows; -1 for a group that the fit did not see.

    Raises a DataError if one are numbers and the other text, so that none would be found.
    """
    given, known = (_KINDS[array.dtype.kind] for array in (labels, names))
    if given != known:
        raise DataError(
            f"groups are {given}, those of the fit {known}, such as {shortened(names.tolist()[0])}: give "
            "labels as in the fit"
        )
    if known == "times":  # in the finer unit: an hour is not its day
        unit = np.promote_types(labels.dtype, names.dtype)
        labels, names = labels.astype(unit), names.astype(unit)
    table = {name: number for number, name in enumerate(names.tolist())}
    return np.array([table.get(label, -1) for label in labels.tolist()], dtype=np.int64)


def normal_nodes(sd):
    """Points and weights (K,) of sums for means over the intercepts of new groups, in standard deviations.

    A trapezoidal sum, whose step the largest of the standard deviations `sd` decides: for ``expit(f + sd z)``
    it errs by ``exp(-2 pi^2 / (sd step))``, and it reaches as far as probabilities near zero have their mass.
    """
    largest = max(float(np.max(sd)), 1e-3)
    reach = _REACH + min(largest, _REACH)
    n = min(int(np.ceil(reach / min(_STEP, 2 / largest))), _STEPS)
    nodes = np.linspace(-reach, reach, 2 * n + 1)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


def cut_groups(numbers, n_shards, seed):
    """Deal whole groups out to shards of about as many rows; returns the sorted rows of each.

    `numbers` (n_rows,) are the groups of rows. Raises a DataError if there are fewer groups than shards.
    """
    sizes = np.bincount(numbers)
    if len(sizes) < n_shards:
        raise DataError(
            f"n_shards={n_shards}, but there are {len(sizes)} groups, of which none is split: take from 1 to "
            f"{len(sizes)}"
        )
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    of_group, loads = np.empty(len(sizes), np.int64), np.zeros(n_shards, np.int64)
    for group in order:  # the largest first, each to the lightest shard
        of_group[group] = loads.argmin()
        loads[of_group[group]] += sizes[group]
    return [np.flatnonzero(of_group[numbers] == m) for m in range(n_shards)]
