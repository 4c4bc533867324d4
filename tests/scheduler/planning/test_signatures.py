"""Signatures of dense layers: against all combinations, and against the matrices themselves."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stradask.errors import DataError
from stradask.scheduler.planning import Link, moved, split_layers
from stradask.scheduler.planning.signatures import SIGNATURES

NAMES = ("data", "column", "row", "copy")
# Forms of x, y, dy and dx, written down again.
FORMS = {
    "data": ("S0", "S0", "S0", "S0"),
    "column": ("B", "S1", "S1", "P"),
    "row": ("S1", "P", "B", "S1"),
    "copy": ("B", "B", "B", "B"),
}


def way(have, want, nbytes, p, link):
    """Seconds of a conversion; the bytes of the paper's table, with a (p - 1)-step ring for each half."""
    table = {"SB": (p - 1, 1), "PS": (p - 1, 1), "PB": (2 * (p - 1), 2), "SS": ((p - 1) / p, 1)}
    if have == want or have == "B" or p == 1:
        return 0.0
    share, rounds = table[have[0] + want[0]]
    return rounds * (p - 1) * link.latency + share * nbytes / p / link.bandwidth


def seconds_of(names, compute, widths, p, link, rows, data):
    total, have, back = 0.0, data, None
    for name, work, a, b in zip(names, compute, widths, widths[1:], strict=False):
        x, y, dy, dx = FORMS[name]
        total += work / (1 if name == "copy" else p) + way(have, x, 4 * rows * a, p, link)
        if back is not None:
            total += way(dx, back, 4 * rows * a, p, link)
        if name == "data":
            total += way("P", "B", 4 * a * b, p, link)
        have, back = y, dy
    after = 4 * rows * widths[-1]
    return total + min(way(have, f, after, p, link) + way(f, back, after, p, link) for f in ("S0", "B"))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5000)), min_size=1, max_size=4),
    st.integers(1, 5000),
    st.integers(1, 8),
    st.integers(1, 5000),
    st.sampled_from(["S0", "B"]),
    st.floats(1e6, 1e10),
)
def test_it_is_the_best_of_all_combinations(layers, first, p, rows, data, bandwidth):
    compute, widths = [work for work, _ in layers], [first, *(width for _, width in layers)]
    link = Link(1e-4, bandwidth)
    found = split_layers(compute, widths, p, link, batch_size=rows, data=data)
    costs = {
        names: seconds_of(names, compute, widths, p, link, rows, data)
        for names in itertools.product(NAMES, repeat=len(compute))
    }
    assert found.seconds == pytest.approx(min(costs.values()), rel=1e-9, abs=1e-12)
    assert costs[found.signatures] == pytest.approx(found.seconds, rel=1e-9, abs=1e-12)
    assert sum(found.compute) + sum(found.travel) == pytest.approx(found.seconds, abs=1e-12)


def test_a_pair_of_layers_is_split_where_its_weights_cost_more_than_its_activations():
    link, compute = Link(0, 1e9), [1.0, 1.0]
    # Gradients of 2 * 8192 * 1024 weights, or twice the activations of 1,024 columns.
    chosen = [
        split_layers(compute, [1024, 8192, 1024], 4, link, batch_size=rows, data="B").signatures
        for rows in (64, 1024, 65536)
    ]
    assert chosen == [("column", "row"), ("column", "row"), ("data", "data")]
    middle = split_layers(compute, [1024, 8192, 1024], 4, link, batch_size=64, data="B")
    assert middle.nbytes == (0.0, 2 * 3 * 4 * 64 * 1024)  # one all-reduce, after the pair
    assert middle.table().splitlines()[1].split()[:2] == ["0", "column"]


def parts(matrix, form, p, rng):
    """Distribute a matrix."""
    if form == "B":
        return [matrix] * p
    if form == "P":
        random = [rng.standard_normal(matrix.shape) for _ in range(p - 1)]
        return [*random, matrix - sum(random)]
    return np.array_split(matrix, p, axis=int(form[1]))


def whole(pieces, form):
    if form == "B":
        assert all(np.array_equal(piece, pieces[0]) for piece in pieces)
        return pieces[0]
    return sum(pieces) if form == "P" else np.concatenate(pieces, axis=int(form[1]))


@pytest.mark.parametrize("signature", SIGNATURES, ids=NAMES)
def test_signatures_compute_the_product_and_its_gradients(signature):
    rng, p = np.random.default_rng(0), 3
    x, w, dy = rng.standard_normal((6, 9)), rng.standard_normal((9, 12)), rng.standard_normal((6, 12))
    xs, ws, dys = (
        parts(matrix, form, p, rng)
        for matrix, form in ((x, signature.x), (w, signature.w), (dy, signature.dy))
    )
    np.testing.assert_allclose(whole([a @ b for a, b in zip(xs, ws, strict=True)], signature.y), x @ w)
    np.testing.assert_allclose(whole([d @ b.T for d, b in zip(dys, ws, strict=True)], signature.dx), dy @ w.T)
    form = "P" if signature.name == "data" else signature.w
    np.testing.assert_allclose(whole([a.T @ d for a, d in zip(xs, dys, strict=True)], form), x.T @ dy)


def test_bytes_are_those_of_the_collective_operations():
    """A ring of p places sends (p - 1) / p of a matrix from each for a gather or a scatter of sums."""
    p, t = 5, 100.0
    assert moved("S0", "B", t, p) == moved("P", "S1", t, p) == p * (p - 1) / p * t
    assert moved("P", "B", t, p) == 2 * p * (p - 1) / p * t
    assert moved("S0", "S1", t, p) == p * (t / p) * (p - 1) / p
    assert moved("B", "S0", t, p) == moved("B", "B", t, p) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compute": [0.1]}, "compute must be 2 finite numbers"),
        ({"compute": [0.1, -1]}, "compute must be 2 finite numbers"),
        ({"widths": [3]}, "widths must be two or more"),
        ({"widths": [3, 0, 1]}, "widths must be two or more"),
        ({"n_places": 0}, "n_places must be at least 1"),
        ({"data": "S1"}, "data must be 'S0' or 'B'"),
    ],
)
def test_refusals(options, said):
    given_ = {
        "compute": [0.1, 0.1],
        "widths": [3, 4, 5],
        "n_places": 2,
        "link": Link(),
        "batch_size": 8,
    } | options
    with pytest.raises(DataError, match=said):
        split_layers(**given_)
