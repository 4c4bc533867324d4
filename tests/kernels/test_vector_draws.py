"""The samplers' draws against their weights, by quadrature: u runs over a fine grid, no randomness."""

import numba as nb
import numpy as np
import pytest

from stradask.kernels.vector import draw_dense, draw_sparse

GRID = 1 << 17
SMOOTH = 0xFFFFFFFF


@nb.njit
def _dense_frequencies(counts, old, phi, alpha, phi_old, grid):
    hits = np.zeros(len(phi), np.int64)
    scratch = np.empty(len(phi), np.float32)
    for g in range(grid):
        u = np.float32((g + 0.5) / grid)
        hits[draw_dense(counts, 0, len(phi) // 16, old, phi, 0, alpha, phi_old, u, scratch, 0)] += 1
    return hits / grid


@nb.njit
def _sparse_frequencies(entries, n_lines, shift, old, phi, phi_old, smooth, grid):
    hits = np.zeros(16 * n_lines + 1, np.int64)
    scratch = np.empty(16 * n_lines, np.float32)
    slots_of_old = {np.int64(-1)}
    for g in range(grid):
        u = np.float32((g + 0.5) / grid)
        found = draw_sparse(entries, 0, n_lines, shift, old, phi, phi_old, smooth, u, scratch)
        slot = found & SMOOTH
        hits[16 * n_lines if slot == SMOOTH else slot] += 1
        slots_of_old.add(found >> 32)
    return hits / grid, slots_of_old


def _padded(values, dtype):
    out = np.zeros((len(values) + 15) // 16 * 16, dtype)
    out[: len(values)] = values
    return out


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32])
@pytest.mark.parametrize("n_topics", [1, 5, 16, 17, 100, 250])
def test_dense_draws_follow_their_weights(n_topics, kind):
    rng = np.random.default_rng(n_topics)
    counts = rng.integers(0, 9, n_topics) * (rng.random(n_topics) < 0.5)
    phi, alpha = rng.gamma(0.5, size=n_topics) + 1e-4, rng.gamma(1, size=n_topics) + 0.01
    for old in (-1, 0, n_topics - 1, n_topics // 2):
        if old >= 0:
            counts[old] += 1
        weight = (counts + alpha) * phi
        phi_old = 0.7 * phi[old] if old >= 0 else 0.0
        if old >= 0:
            weight[old] = (counts[old] - 1 + alpha[old]) * phi_old
        found = _dense_frequencies(
            _padded(counts, kind),
            old,
            _padded(phi, np.float32),
            _padded(alpha, np.float32),
            np.float32(phi_old),
            GRID,
        )
        expected = _padded(weight / weight.sum(), float)
        np.testing.assert_allclose(found, expected, atol=3 / GRID + 2e-6)


def test_the_quadrature_rejects_a_weight_that_is_two_per_cent_off():
    phi = np.ones(16, np.float32)
    alpha = np.ones(16, np.float32)
    found = _dense_frequencies(np.zeros(16, np.uint16), -1, phi, alpha, np.float32(0), GRID)
    alpha[3] = 1.02
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(found, alpha / alpha.sum(), atol=3 / GRID + 2e-6)


@pytest.mark.parametrize("shift", [16, 4, 20])
@pytest.mark.parametrize("n_lines", [1, 3])
def test_sparse_draws_follow_their_weights(n_lines, shift):
    rng = np.random.default_rng(n_lines)
    n_topics, n_slots = 300, 16 * n_lines
    topics = rng.choice(n_topics, n_slots, replace=False)
    counts = rng.integers(1, 9, n_slots) * (rng.random(n_slots) < 0.8)
    old_slot = n_slots - 2
    counts[old_slot] = 3
    phi = rng.gamma(0.5, size=n_topics) + 1e-4
    entries = (topics << shift | counts).astype(np.uint32)
    phi_old, smooth = np.float32(0.7 * phi[topics[old_slot]]), np.float32(2.5)
    weight = np.append(counts * phi[topics], smooth)
    weight[old_slot] = 2 * phi_old
    found, slots_of_old = _sparse_frequencies(
        entries, n_lines, shift, topics[old_slot], phi.astype(np.float32), phi_old, smooth, GRID
    )
    np.testing.assert_allclose(found, weight / weight.sum(), atol=3 / GRID + 2e-6)
    assert slots_of_old == {-1, old_slot}
