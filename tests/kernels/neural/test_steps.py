"""Steps of optimisers against their formulas in double precision; the same bits however vectors are cut."""

import numpy as np
import pytest

from stradask.kernels.neural.steps import adam_step, momentum_step, sgd_step


def moved(name, params, grads, one, two, decay, mask, kind):
    """Make a step in place."""
    if name == "sgd":
        sgd_step(params, grads, kind(decay), mask, kind(0.1))
    elif name == "adam":
        numbers = map(kind, (0.1, 0.3, 0.9, 0.99, 1e-3))
        adam_step(params, grads, one, two, kind(decay), mask, *numbers)
    else:
        momentum_step(params, grads, one, kind(decay), mask, kind(0.1), kind(0.9), name == "nesterov")


def formula(name, w, g, one, two, decay):
    """Return the parameters after a step."""
    g = g + decay * w
    if name == "sgd":
        return w - 0.1 * g
    if name == "adam":
        m, v = 0.9 * one + 0.1 * g, 0.99 * two + 0.01 * g * g
        return w - 0.1 * m / (np.sqrt(v) / 0.3 + 1e-3)
    v = 0.9 * one + g
    return w - 0.1 * (g + 0.9 * v if name == "nesterov" else v)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam"])
def test_steps(name, masked):
    rng = np.random.default_rng(0)
    start = rng.standard_normal((4, 1001))
    start[3] **= 2
    mask = (rng.random(1001) < 0.5).astype(float) if masked else np.empty(0)
    wanted = formula(name, *start, 0.05 * (mask if masked else 1))
    for kind, tolerance in ((np.float64, 1e-14), (np.float32, 2e-6)):
        whole, parts = [[v.astype(kind) for v in start] for _ in range(2)]
        moved(name, *whole, 0.05, mask.astype(kind), kind)
        assert abs(whole[0] - wanted).max() < tolerance
        for part in (slice(0, 333), slice(333, 1001)):
            moved(
                name, *(v[part] for v in parts), 0.05, mask.astype(kind)[part if masked else slice(0)], kind
            )
        assert all(map(np.array_equal, whole, parts))
