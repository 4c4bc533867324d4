"""The report of a fitted linear model."""

from ...errors import in_brief
from ...registry import model_of

N_COEFFICIENTS = 10


def report(estimator, data, test):
    """Return figures and coefficients of a fitted linear model, see `stradask.registry.Model`.

    All coefficients where they have standard errors, else the largest ones.
    """
    import numpy as np

    errors = vars(estimator).get("standard_errors_")
    if errors is not None and not np.isnan(errors).all():
        return _report_errors(estimator, data, test)
    coef = np.atleast_2d(estimator.coef_)
    document: dict = _figures(estimator)
    lines = []
    if hasattr(estimator, "alpha_"):
        chosen, text = _choice(estimator)
        document |= chosen
        lines.append(f"penalty      {text}")
    rounds = document["iterations"] = int(np.max(estimator.n_iter_))
    if hasattr(estimator, "dual_gap_"):
        gap = document["dual_gap"] = float(np.max(estimator.dual_gap_))
        lines.append(f"gap          {gap:.2e} after {rounds} rounds")
    elif hasattr(estimator, "solver_"):
        document["solver"] = estimator.solver_
        lines.append(f"solver       {estimator.solver_}, {rounds} steps")
    document |= {"nonzeros": int(np.count_nonzero(coef)), "coefficients": coef.size}
    lines.append(f"non-zeros    {document['nonzeros']:,} of {coef.size:,} coefficients")
    if hasattr(estimator, "groups_"):
        chosen = [name for name, columns in estimator.groups_.items() if coef[:, columns].any()]
        document["groups"] = {"chosen": chosen, "of": len(estimator.groups_)}
        names = f": {in_brief(', '.join(chosen), 200)}" * bool(chosen)
        lines.append(f"groups       {len(chosen):,} of {len(estimator.groups_):,}{names}")
    add_scores(document, lines, estimator, data, test)
    largest = _largest(estimator, coef)
    return document | {"largest": largest}, "\n".join([*lines, *_as_lines(largest)])


def _report_errors(estimator, data, test):
    """Return figures and the table of coefficients with standard errors."""
    summary = estimator.summary()
    table = summary.table
    names = getattr(estimator, "vocabulary_", None)
    if names is not None:
        table.rows[-len(names) :] = map(str, names)
    document = _figures(estimator)
    document["coefficients"] = [{"name": name} | table.row(name) for name in table.rows]
    document["reference_levels"] = getattr(estimator, "reference_levels_", {})
    lines: list = []
    add_scores(document, lines, estimator, data, test)
    return document, "\n".join([repr(summary), "", *lines])


def _figures(estimator):
    """The figures of a `GLM` as numbers, None where there is none; nothing for other models."""
    if not hasattr(estimator, "covariance"):
        return {}
    names = ["df_residual", "dispersion", "deviance", "null_deviance", "log_likelihood", "aic", "bic"]
    names += ["overdispersion", "n_clusters"]
    found = {name: float(getattr(estimator, f"{name}_")) for name in names if hasattr(estimator, f"{name}_")}
    numbers = {name: value if value == value else None for name, value in found.items()}
    return {"figures": numbers | {"covariance": estimator.covariance}}


def add_scores(document, lines, estimator, data, test):
    """Add how well a model predicts the rows that it learnt from, and those held out (or None)."""
    for name, rows in (("training", data), ("test", test)):
        if rows is not None:
            rows = rows.scored(estimator)
            document[name], text = judged(estimator, rows)
            lines.append(f"{name:<12} {text}, {rows.X.shape[0]:,} rows")


def judged(estimator, data):
    """Return how well a model predicts: scores by name, and as text.

    R2 of a regressor, D2 where that is a share of the deviance; concordance of a survival model; accuracy and
    log loss of a classifier, to which labels it does not know are errors.
    """
    if not hasattr(estimator, "classes_"):
        score = float(estimator.score(data.X, data.y))
        if model_of(estimator).data == "survival":
            return {"concordance": score}, f"concordance {score:.4f}"
        name = getattr(estimator, "_score_name", "R2")
        return {name.lower(): score}, f"{name} {score:.4f}"
    import numpy as np

    scores = {"accuracy": float(estimator.score(data.X, data.y))}
    place = np.searchsorted(estimator.classes_, data.y)
    if np.isin(data.y, estimator.classes_).all():
        chance = np.take_along_axis(np.asarray(estimator.predict_proba(data.X)), place[:, None], axis=1)
        tiny = np.finfo(chance.dtype).tiny
        scores["log_loss"] = float(-np.log(np.maximum(chance, tiny)).mean())
    return scores, ", ".join(f"{name.replace('_', ' ')} {score:.4f}" for name, score in scores.items())


def _choice(estimator):
    """Return the choice of cross-validation, for JSON and in words."""
    names = [name for name in ("alpha_", "alpha_min_", "alpha_1se_", "l1_ratio_") if hasattr(estimator, name)]
    chosen = {name.rstrip("_"): float(getattr(estimator, name)) for name in names}
    ratio = f", l1_ratio {chosen['l1_ratio']:g}" if "l1_ratio" in chosen else ""
    text = (
        f"alpha {chosen['alpha']:.4g}{ratio}; {estimator.alphas_.size} tried in "
        f"{estimator.scores_.shape[-1]} folds: best mean score at {chosen['alpha_min']:.4g}, one standard "
        f"error from it at {chosen['alpha_1se']:.4g}"
    )
    return chosen, text


def _largest(estimator, coef):
    """Return the largest coefficients, for JSON."""
    import numpy as np

    names = getattr(estimator, "vocabulary_", None)
    found = []
    for row, values in enumerate(coef):
        columns = np.flatnonzero(values)
        columns = columns[np.argsort(-abs(values[columns]), kind="stable")][:N_COEFFICIENTS]
        for column in columns.tolist():
            entry = {"column": column, "coefficient": float(values[column])}
            if len(coef) > 1 and hasattr(estimator, "classes_"):
                entry = {"class": estimator.classes_[row].item()} | entry
            elif len(coef) > 1:
                entry = {"target": row} | entry
            found.append(entry if names is None else entry | {"name": str(names[column])})
    return found


def _as_lines(largest):
    if not largest:
        return []
    heading = ["", f"{'coefficient':>12}  column"]
    return heading + [
        f"{entry['coefficient']:12.5g}  {entry.get('name', entry['column'])}"
        + "".join(f"  ({key} {entry[key]})" for key in ("class", "target") if key in entry)
        for entry in largest
    ]
