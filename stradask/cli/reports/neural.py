"""The report of a fitted network."""

from .linear import add_scores


def report(estimator, data, test):
    """Return figures of a fitted network, see `stradask.registry.Model`."""
    widths = [estimator.n_features_in_, *(len(b) for b in estimator.intercepts_)]
    n_parameters = sum(W.size + b.size for W, b in zip(estimator.coefs_, estimator.intercepts_, strict=True))
    steps = "passes" if estimator.solver == "downpour" else "steps"
    document = {
        "solver": estimator.solver,
        "device": estimator.device_,
        "iterations": estimator.n_iter_,
        "loss": float(estimator.loss_),
        "layers": widths,
        "network_parameters": n_parameters,
    }
    lines = [
        f"network      {' - '.join(map(str, widths))}, {n_parameters:,} parameters, on {estimator.device_}",
        f"solver       {estimator.solver}, {estimator.n_iter_} {steps}, loss {estimator.loss_:.5g}",
    ]
    add_scores(document, lines, estimator, data, test)
    return document, "\n".join(lines)
