"""scikit-learn's own checks pass; which ones do not, and why, is declared in `_expected_failed_checks`."""

import functools
import warnings

import numpy as np
import pytest
from contract_cases import cases
from scipy import sparse
from sklearn.utils import estimator_checks

# `fit_transform` averages shares over the chain of the fit, where `transform` holds the topics; pickle finds
# no class that a function made.
NOT_OF_COUNTS = {
    "check_transformer_general",
    "check_transformer_data_not_an_array",
    "check_estimators_pickle",
}
# Those that need no data that scikit-learn knows.
WITHOUT_DATA = """
    do_not_raise_errors_in_init_or_set_params estimator_cloneable estimator_repr estimator_tags_renamed
    estimators_unfitted get_params_invariance mixin_order no_attributes_set_in_init
    parameters_default_constructible set_params valid_tag_types
""".split()  # noqa: SIM905


@pytest.mark.parametrize("case", cases("check_estimator", lambda case: case.variant in ("", "downpour")))
def test_what_fails_is_declared(case):
    """What is declared of models of real numbers may pass: some checks fail for some parameters alone."""
    model = case.make().set_params(**case.checks)
    if not case.has_columns:
        assert not model.__sklearn_tags__().input_tags.two_d_array
        for name in WITHOUT_DATA:
            getattr(estimator_checks, f"check_{name}")(type(model).__name__, model)
        return
    failed, run = outcomes(model)
    declared = set(getattr(model, "_expected_failed_checks", {}))
    assert failed <= declared
    assert declared <= run | {"check_regressor_multioutput", "check_classifier_data_not_an_array"}
    if case.data.startswith("documents"):
        assert failed == declared
        assert outcomes(rounding(model, case.given))[0] <= NOT_OF_COUNTS


def outcomes(model):
    """Return the names of the checks that fail, and of all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence, and of what the checks try
        found = estimator_checks.check_estimator(model, on_fail=None, on_skip=None)
    assert len(found) > 40
    return {o["check_name"] for o in found if o["status"] == "failed"}, {o["check_name"] for o in found}


def rounding(model, given):
    """Put a model behind a door that rounds up, so that the checks' fractions reach the code as counts."""
    cls = type(model)

    def behind(name):
        method = getattr(cls, name)

        @functools.wraps(method)
        def rounded(self, X, y=None, **options):
            if name in ("fit", "fit_transform"):
                options |= {"seed_words": {0: [0]}} if given.also else {}
                options |= {"slices": np.zeros(np.shape(X)[0], int)} if "slices" in given.by_row else {}
            return method(self, counts(X), *([] if y is None else [y]), **options)

        return rounded

    names = "fit", "partial_fit", "fit_transform", "transform", "predict", "score"
    methods = {name: behind(name) for name in names if hasattr(cls, name)}
    return type(cls.__name__, (cls,), methods)(**model.get_params())


def counts(X):
    """Round numbers up, leave everything else for the estimator to judge."""
    if sparse.issparse(X):
        return X.tocsr().ceil() if X.dtype.kind == "f" else X
    if hasattr(X, "columns"):
        return np.ceil(X)
    values = np.asarray(X)
    if values.dtype == object:
        try:
            values = values.astype(float)
        except (TypeError, ValueError):
            return X
    return np.ceil(values) if values.dtype.kind == "f" else X
