"""A warning before anything is sampled or checked: a density without derivatives will take long."""

import time
import warnings

_DRAWS, _GRADIENTS = 8000, 7  # four chains with their warm-up; of a draw of NUTS: trees of three doublings
_LONG = 300.0  # seconds; "auto" often takes far less than NUTS
_TIMES = 5
DEPTH = 10  # of `sample` in one piece


def warn_of_differences(model):
    """Warn if a density without derivatives will take NUTS more than five minutes, by a gradient's time."""
    seconds = _time(model)
    if seconds * _DRAWS * _GRADIENTS > _LONG:  # the first call may have compiled, or been in a busy moment
        seconds = min(_time(model) for _ in range(_TIMES))
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
        stacklevel=DEPTH,
    )


def _time(model):
    began = time.thread_time()  # other processes do not count
    model.logp_grad(model.start)
    return time.thread_time() - began
