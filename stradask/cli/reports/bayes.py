"""The report of a fitted Bayesian regression."""

import math

from .linear import add_scores

N_ROWS = 20  # of the summary that are shown as text


def report(estimator, data, test):
    """Return the posterior's summary and the verdict of its diagnostics, see `stradask.registry.Model`."""
    document, lines, diagnostics = _head(estimator)
    add_scores(document, lines, estimator, data, test)
    return _with_summary(document, lines, _with_names(estimator.posterior_.summary(), estimator), diagnostics)


def report_formula(estimator, data, test):
    """The same of a model by formula: parameters without effects; log scores in place of accuracies."""
    import numpy as np
    from scipy.special import logsumexp

    document, lines, diagnostics = _head(estimator)
    for name, rows in (("training", data), ("test", test)):
        if rows is not None:
            by_draw = estimator.log_likelihood(rows.frame)
            score = float(np.mean(logsumexp(by_draw, axis=0) - np.log(len(by_draw))))
            document[name] = {"log_score": score}
            lines.append(f"{name:<12} mean log predictive density {score:.4f}, {by_draw.shape[1]:,} rows")
    document["groups"] = {name: len(levels) for name, levels in estimator.groups_.items()}
    return _with_summary(document, lines, estimator.summary(), diagnostics)


def _head(estimator):
    posterior = estimator.posterior_
    diagnostics = posterior.diagnostics
    document: dict = {
        "draws": len(posterior),
        "method": posterior.method,
        "sampler": estimator.sampler_,
        "shards": estimator.n_shards_,
        "verdict": diagnostics.verdict,
        "diagnostics": [_as_json({"figure": row} | diagnostics.row(row)) for row in diagnostics.rows],
    }
    return document, [f"posterior    {len(posterior):,} draws by {posterior.method}"], diagnostics


def _with_summary(document, lines, summary, diagnostics):
    document["summary"] = [_as_json({"parameter": row} | summary.row(row)) for row in summary.rows]
    return document, "\n".join([*lines, "", *_as_lines(summary), "", str(diagnostics)])


def _with_names(summary, estimator):
    """Name coefficients by their columns, where these have names."""
    from ...algorithms._table import Table

    names = getattr(estimator, "vocabulary_", None)
    if names is None:
        return summary
    of_row = {f"coef[{column}]": f"coef[{name}]" for column, name in enumerate(names)}
    return Table([of_row.get(row, row) for row in summary.rows], summary.columns)


def _as_lines(summary):
    """Return the first rows, and the number of the others."""
    from ...algorithms._table import Table

    shown = {name: values[:N_ROWS] for name, values in summary.columns.items()}
    lines = str(Table(summary.rows[:N_ROWS], shown)).splitlines()
    left = len(summary) - N_ROWS
    return lines if left <= 0 else [*lines, f"and {left:,} more (--json has all, and so has the saved model)"]


def _as_json(row):
    """JSON has no NaN and no infinity."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
