"""What `minimize` calls converged: on classical problems from far starts, nothing far above the minimum."""

import numpy as np
import pytest

from stradask.algorithms.optimize.minimize import minimize

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # far starts overflow


def rosenbrock(x, steep=100):
    return (steep * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def beale(x):
    return sum((a - x[0] * (1 - x[1] ** k)) ** 2 for k, a in enumerate((1.5, 2.25, 2.625), 1))


def wood(x):
    near = 10.1 * ((x[1] - 1) ** 2 + (x[3] - 1) ** 2) + 19.8 * (x[1] - 1) * (x[3] - 1)
    return (
        100 * (x[1] - x[0] ** 2) ** 2
        + (1 - x[0]) ** 2
        + 90 * (x[3] - x[2] ** 2) ** 2
        + (1 - x[2]) ** 2
        + near
    )


def powell(x):
    return (1e4 * x[0] * x[1] - 1) ** 2 + (np.exp(-x[0]) + np.exp(-x[1]) - 1.0001) ** 2


def singular(x):
    return (x[0] + 10 * x[1]) ** 2 + 5 * (x[2] - x[3]) ** 2 + (x[1] - 2 * x[2]) ** 4 + 10 * (x[0] - x[3]) ** 4


def circle(x):
    return 100 * (x[2] - 10 * x[0] * x[1]) ** 2 + 100 * (np.sqrt(x[0] ** 2 + x[1] ** 2) - 1) ** 2 + x[2] ** 2


def nesterov(x):
    return 0.25 * (x[0] - 1) ** 2 + ((x[1:] - 2 * x[:-1] ** 2 + 1) ** 2).sum()


def cube(x):
    return 100 * (x[1] - x[0] ** 3) ** 2 + (1 - x[0]) ** 2


def brown(x):
    return (x[0] - 1e6) ** 2 + (x[1] - 2e-6) ** 2 + (x[0] * x[1] - 2) ** 2


def quartic(x):
    return 1 + ((x - 3) ** 4).sum()


def with_gradient(function):
    """Of complex steps, exact to rounding."""

    def value_and_gradient(_, x):
        gradient = [function(x + 1e-30j * unit).imag / 1e-30 for unit in np.eye(len(x))]
        return function(x.astype(complex)).real, np.array(gradient)

    return value_and_gradient


CASES = [
    (rosenbrock, [-1.2, 1], (1, 10, 100, 1000), 0.0),
    (lambda x: rosenbrock(x, 1e4), [-1.2, 1], (1, 10, 100, 1000), 0.0),
    (beale, [1, 1], (1, 10, 100), 0.0),
    (wood, [-3, -1, -3, -1], (1, 10, 100), 0.0),
    (powell, [1, 2], (1,), 0.0),
    (singular, [3, -1, 0, 1], (1, 100), 0.0),
    (circle, [-1, 0.1, 0], (1, 1000), 0.0),
    (nesterov, [-1, 1, 1, 1, 1], (10, 100), 0.0),
    (cube, [-1.2, 1], (1, 10, 100), 0.0),
    (brown, [1, 1], (1, 1000), 0.0),
    (quartic, [1, 2, 5], (1, 1000), 1.0),
]


@pytest.mark.parametrize(
    ("function", "start", "minimum"),
    [(f, np.multiply(start, far), minimum) for f, start, times, minimum in CASES for far in times],
)
def test_no_success_is_far_above_the_minimum(function, start, minimum):
    result = minimize(with_gradient(function), start, [0], max_iter=20_000)
    assert result.success, result.message
    assert minimum <= result.fun < minimum + 1e-5 * (1 + minimum)
    assert result.nfev == result.history["passes"][-1]


@pytest.mark.parametrize("options", [{"l1": 1e-12}, {"bounds": [(-1e7, 1e7)] * 2}])
def test_with_bounds_and_penalties_a_valley_is_no_minimum(options):
    result = minimize(with_gradient(rosenbrock), [-1200.0, 1000.0], [0], max_iter=300, **options)
    assert not result.success or result.fun < 1e-5


def test_a_bound_that_holds_is_left_out_of_the_proof():
    result = minimize(with_gradient(rosenbrock), [-1200.0, 1000.0], [0], bounds=[(-1e4, 0.5), (-1e7, 1e7)])
    assert result.success
    np.testing.assert_allclose(result.x, [0.5, 0.25], atol=1e-4)


def test_with_products_of_the_hessian_a_valley_is_no_minimum():
    def product(_, x, v):
        a, b = 1200 * x[0] ** 2 - 400 * x[1] + 2, -400 * x[0]
        return np.array([a * v[0] + b * v[1], b * v[0] + 200 * v[1]])

    result = minimize(with_gradient(rosenbrock), [-120.0, 100.0], [0], hessp=product)
    assert result.success
    assert result.fun < 1e-5
