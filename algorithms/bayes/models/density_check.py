"""Checks of a user's density before anything is sampled: its gradient, and whether it is proper."""

import time
import warnings
from dataclasses import replace

import numpy as np

from ....errors import DataError, shortened
from ....kernels.bayes.streams import uniforms
from ....scheduler.threads import single_threaded_blas
from ..chains.chain import STARTING, starting_point, stream
from ..chains.laplace import hessian
from .failures import place_words

STEP = np.finfo(float).eps ** (1 / 3)  # of differences
_TOLERANCE = 1e-4  # of a gradient, in parts of its size
_NOISE = 1e-13  # of the log density, in parts of its size
_PLACES = 3  # at which derivatives are compared
# Distances between which any proper density falls by more than 1/x does, if it is no wider than 1e30. Those
# farther out are tried only where it did not at nearer ones, and squares there are still numbers.
_FAR = ((1e2, 6e2), (1e5, 1e6), (1e8, 1e15), (1e20, 1e60))
_LEVEL = 1e-4  # curvature of a ridge, in parts of the largest: differences do not tell it from none
_ROUGH = 4e-6  # error of a curvature by differences of differences, in parts of the log density
_ALONG = (1.0, 1e2, 1e4, 1e6, 1e8)  # beyond, no direction that is found is exact enough
_EXACT = 1e-6  # of a direction
_NEWTON = 2  # steps back to the ridge
_SHELF = 100.0  # log density below that of the start of a constant that stands for a bound
_TOGETHER = 256  # lines that are looked along in one call: all at once take 8 d^2 numbers

# Of the warning before a density without derivatives is sampled.
_DRAWS, _GRADIENTS = 8000, 7  # four chains with their warm-up; of a draw of NUTS: trees of three doublings
_LONG = 300.0  # seconds; "auto" often takes far less than NUTS
_TIMES = 5
_DEPTH = 10  # of `sample` in one piece


def check_density(model):
    """Compare gradients with differences of the log density, at three points about the start.

    Returns the model, whose chains begin elsewhere if it has no density at its start, with a warning. Raises
    a DataError that names the parameter and both numbers.
    """
    d = model.n_params
    model.take_tally()
    logp, gradient = model.logp_grad(model.start)
    tally = model.take_tally()
    on_edge = np.isfinite(logp) and not np.isfinite(gradient).all() and model.is_differenced
    model = _moved(model, logp, tally) if on_edge or not np.isfinite(logp) else model
    spread = uniforms(stream(0, 0, 0, STARTING), _PLACES * d).reshape(_PLACES, d) - 0.5
    spread[0] = 0
    slopes = np.zeros(d)
    for place, q in enumerate(model.start + spread):
        logp, gradient = model.logp_grad(q)
        if place == 0:
            _warn_of_differences(model)
        if place == 0 or np.isfinite(logp):  # beyond the start the density may end
            _check_point(model, q, logp, gradient)
            slopes += np.abs(gradient)
    _check_falls(model, slopes == 0)
    return model


def _moved(model, logp, tally):
    """Let the chains of a model that has no density at its start begin where it has one, near by."""
    where = place_words(model.names, model.start)
    words, counts = f"is {logp} at {where}", ", which counts as a density of zero"
    if np.isfinite(logp):
        words, counts = f"ends beside {where}, so that it has no gradient there", ""
    elif tally.failed:
        words = f"fails at the start with {tally.first}"
    try:
        q = starting_point(model, seed=0)
    except DataError:
        hint = "" if tally.failed or np.isfinite(logp) else " (NaN among the data makes it NaN everywhere)"
        raise DataError(
            f"the log density {words}: give a start= where it is finite, or mend it{hint}"
        ) from tally.error
    warnings.warn(
        f"the log density {words}{counts}: chains begin about "
        f"{place_words(model.names, q)}. Give a start= where it is finite, or mend it",
        stacklevel=_DEPTH,
    )
    return replace(model, start=q)


def _check_falls(model, flat):
    """Refuse a density that along some line from the start falls no faster than one over the distance.

    Such a density cannot be normalised, and its chains would wander without end. The lines are all axes, the
    gradient and the eigenvectors of the Hessian at the start. Those without curvature are ridges, and are
    followed as far as their direction can be found. A density that is constant near the start, in the
    parameters that are `flat`, may end farther out, and is proper then.
    """
    with single_threaded_blas():
        logp, gradient = model.logp_grad(model.start)
        curvature = hessian(model, model.start)
        lines, ridges = (
            np.concatenate([np.eye(model.n_params), gradient[None]]),
            np.empty((0, model.n_params)),
        )
        if np.isfinite(curvature).all():
            values, vectors = np.linalg.eigh(curvature)
            lines = np.concatenate([lines, vectors.T])
            level = np.abs(values) <= _LEVEL * np.abs(values).max() + _ROUGH * abs(logp)
            if not level.all():
                ridges = _followed(model, vectors[:, level].T, values[~level], vectors[:, ~level], gradient)
    # Along multiples of eighths sums cancel without rounding, however far out.
    eighths = np.round(8 * ridges) / 8
    exact = (np.abs(ridges - eighths) < _EXACT).all(axis=1)
    sizes = np.abs(lines).max(axis=1)
    lines = lines[sizes > 0] / sizes[sizes > 0, None]
    sides = np.concatenate([lines, -lines, eighths[exact]])
    for near, far in _FAR:
        if not len(sides):
            break
        pieces = np.array_split(sides, 1 + len(sides) // _TOGETHER)
        sides = sides[np.concatenate([_stay(model, piece, near, far) for piece in pieces])]
    sides = np.concatenate([sides, ridges[~exact]])
    if not len(sides):
        return
    axes = np.eye(model.n_params)
    both = [
        j
        for j in np.flatnonzero(flat)
        if all((sides == way).all(axis=1).any() for way in (axes[j], -axes[j]))
    ]
    bounds = (
        "return -inf there, or declare the bounds, such as parameters={'rate': sd.interval(0, 10)} for a "
        "function of p.rate"
    )
    if both:
        words = "leave it out, or give it a proper prior"
        if len(both) == model.n_params:
            words += (
                f". It is {logp:.6g} at the start and wherever it was looked at: if that stands for a bound, "
                f"{bounds}, and begin within them"
            )
        raise DataError(
            f"the log density does not depend on the parameter {shortened(model.names[both[0]])}: {words}"
        )
    far = model.start + np.outer(_FAR[0], sides[0])
    shelf, farther = model.logp_batch(far)
    if shelf == farther < logp - _SHELF:
        raise DataError(
            f"the log density is {shelf:.6g} at {place_words(model.names, far[0])} and farther out, a "
            f"constant in place of a bound: {bounds}"
        )
    pairs = zip(model.names, sides[0], strict=True)
    parts = [f"{part:+.2g} {name}" for name, part in pairs if abs(part) > 0.05]
    raise DataError(
        f"the log density does not fall along {' '.join(parts[:8])}: the posterior cannot be "
        "normalised; give the parameters a proper log_prior there"
    )


def _followed(model, level, values, steep, gradient):
    """Follow lines (k, d) without curvature, and return those along which the density does not fall.

    Along a straight ridge the gradient is the same as at the start: Newton's steps across the ridge find its
    direction, to rounding errors, from points farther and farther out. `values` (d - k,) and `steep` (d, d -
    k) are the curvatures across, and their directions.
    """
    directions = []
    for line in np.concatenate([level, -level]):
        heights, direction = [], line
        for distance in _ALONG:
            point = model.start + distance * direction
            logp, here = _at(model, point)
            for _ in range(_NEWTON):
                if not np.isfinite(logp):
                    break
                other = point + steep @ (steep.T @ (here - gradient) / values)
                better, there = _at(model, other)
                if not better >= logp - _ROUGH * abs(
                    logp
                ):  # NaN, or differences too wide for the ridge so far out
                    break
                point, logp, here = other, better, there
            heights.append(logp)
            if not np.isfinite(logp):
                break
            direction = (point - model.start) / distance
        falls = np.diff(heights[1:]) if len(heights) == len(_ALONG) else [-np.inf]
        if (falls > -np.diff(np.log(_ALONG[1:]))).all():
            directions.append(direction / np.abs(direction).max())
    return np.array(directions).reshape(-1, model.n_params)


def _at(model, point):
    """Log density and gradient; NaN where the function fails, as no chain comes so far."""
    try:
        with np.errstate(all="ignore"):
            logp, gradient = model.logp_grad(point)
    except Exception:
        return np.nan, None
    return (logp, gradient) if np.isfinite(gradient).all() else (np.nan, None)


def _stay(model, sides, near, far):
    """Whether the log density falls by less than that of 1/x along lines; false where it is undefined."""
    try:
        logps, _ = model.logp_grads(model.start + np.concatenate([near * sides, far * sides]))
    except Exception:  # whatever a function says of points where no chain comes: it does not reach so far
        if len(sides) < 2:
            return np.zeros(len(sides), bool)
        return np.concatenate([_stay(model, side[None], near, far) for side in sides])
    logps = logps.reshape(2, -1)
    finite = np.isfinite(logps).all(axis=0)
    return finite & (np.diff(np.where(finite, logps, 0.0), axis=0)[0] > -np.log(far / near))


def _check_point(model, q, logp, gradient):
    where = f"at {place_words(model.names, q)}"
    wrong = np.flatnonzero(~np.isfinite(gradient))
    if len(wrong):
        raise DataError(
            f"the gradient of the log density for the parameter {shortened(model.names[wrong[0]])} is "
            f"{gradient[wrong[0]]} {where}: mend the gradient, or leave it out to have it differenced"
        )
    h = STEP * np.maximum(1.0, np.abs(q))
    logps, _ = model.logp_grads(np.concatenate([q + np.diag(h), q - np.diag(h)]))
    right, left = logps.reshape(2, -1)
    alone = np.flatnonzero((right == -np.inf) & (left == -np.inf))
    if len(alone):
        j = alone[0]
        raise DataError(
            f"the log density is -inf on both sides of {model.names[j]} = {q[j]:.6g}, {h[j]:.1g} away: give "
            "the parameter a larger unit"
        )
    expected = (right - left) / (2 * h)
    scale = np.abs(expected).max()
    allowed = _TOLERANCE * (np.abs(expected) + np.abs(gradient) + _TOLERANCE * scale) + _NOISE * abs(logp) / h
    wrong = np.flatnonzero(~(np.abs(gradient - expected) <= allowed + 1e-6))
    if len(wrong):
        j = wrong[0]
        raise DataError(
            f"the gradient for the parameter {shortened(model.names[j])} is {gradient[j]:.6g} {where}, but "
            f"differences of the log density give {expected[j]:.6g}: mend the gradient, or leave it out to "
            "have it differenced"
        )


def _warn_of_differences(model):
    """Warn if a density without derivatives will take NUTS more than five minutes, by a gradient's time."""
    seconds = _seconds_of_gradient(model)
    if seconds * _DRAWS * _GRADIENTS > _LONG:  # the first call may have compiled, or been in a busy moment
        seconds = min(_seconds_of_gradient(model) for _ in range(_TIMES))
    whole = seconds * _DRAWS * _GRADIENTS
    if whole < _LONG or not model.is_differenced:
        return
    evaluations = 2 * model.n_params + 1
    form = "in the last argument g" if hasattr(model, "functions") else "as (value, gradient)"  # compiled
    warnings.warn(
        f"the density has no derivatives, so that a gradient takes {evaluations} evaluations of "
        f"{1e6 * seconds / evaluations:.0f} microseconds: {_DRAWS} draws of NUTS, of about {_GRADIENTS} "
        f"gradients each, will take some {max(whole / 60, 1):.0f} minutes of a processor. Give derivatives "
        f"{form}, which cost about as much as one evaluation, or write the density for autodiff='jax' or "
        "'torch'; verbose=1 shows the progress",
        stacklevel=_DEPTH,
    )


def _seconds_of_gradient(model):
    began = time.thread_time()  # other processes do not count
    model.logp_grad(model.start)
    return time.thread_time() - began
