"""A model that was fitted to a frame knows its columns by their names, and refuses other ones."""

import copy
import pickle

import numpy as np
import pytest
from contract_cases import COLUMNS, WORDS, cases, readers, short_fits
from matplotlib import pyplot
from matplotlib.text import Text
from sklearn.model_selection import GridSearchCV

import stradask as sd
from stradask.errors import DataError

OTHER_COLUMNS = {
    "permuted": lambda X: X[X.columns[::-1]],
    "renamed": lambda X: X.rename(columns={X.columns[1]: "new"}),
    "missing": lambda X: X.drop(columns=X.columns[1]),
    "added": lambda X: X.assign(new=X[X.columns[1]]),
}


def searchable(case):
    """Whether a search can judge the estimator, without keywords that have a value a row."""
    return (
        case.has_columns and not case.given.by_row and not case.given.also and hasattr(case.make(), "score")
    )


@pytest.mark.parametrize("case", cases("names", lambda case: case.has_columns))
def test_names_are_kept_and_compared(case, tmp_path):
    model, given, columns = case.fitted_to_frame, case.frame, COLUMNS[case.data]
    if not case.name.startswith("Torch"):  # a module has no place in a file
        model.save(tmp_path / "model")
        check_names(sd.load(tmp_path / "model"), given, columns)
        check_names(pickle.loads(pickle.dumps(model)), given, columns)
    check_names(model, given, columns)
    np.testing.assert_allclose(case.answer(model, given), case.answer(case.fitted), rtol=1e-6, atol=1e-8)
    assert not hasattr(case.fitted, "feature_names_in_")


def check_names(model, given, columns):
    assert list(model.feature_names_in_) == columns
    methods = readers(model)
    if hasattr(model, "partial_fit"):
        methods["partial_fit"] = lambda given: copy.deepcopy(model).partial_fit(*given.arguments())
    for name, read in methods.items():
        with short_fits():
            read(given)
        for form, change in OTHER_COLUMNS.items():
            other = given._replace(X=change(given.X))
            with pytest.raises(DataError), short_fits():
                assert read(other) is None, f"{name} took columns that are {form}"


# What a fitted model shows of its columns, as text.
SHOWN = {
    "summary": lambda model: model.summary(),
    "posterior_": lambda model: model.posterior_.summary(),
    "topics": lambda model: model.topics(n_words=WORDS),
    "plot": lambda model: texts_of(model.plot()),
    "plot_topics": lambda model: texts_of(model.plot_topics("dendrogram")),
}


@pytest.mark.parametrize("case", cases("names", lambda case: case.has_columns))
def test_tables_and_pictures_show_names(case):
    model, columns = case.fitted_to_frame, COLUMNS[case.data]
    for name, show in SHOWN.items():
        if hasattr(model, name) and case.name not in (
            "CoxRegression",
            "CoxRegression, mcp",
        ):  # whose summary needs alpha=0
            text = str(show(model))
            assert sum(column in text for column in columns) >= len(columns) // 3, f"{name}: {text}"


def texts_of(axes):
    figure = np.ravel(axes)[0].figure
    figure.canvas.draw()
    pyplot.close(figure)
    return [text.get_text() for text in figure.findobj(Text)]


@pytest.mark.parametrize("case", cases("names", searchable))
def test_names_are_kept_in_searches_and_pipelines(case):
    frame = case.frame
    with short_fits():
        search = GridSearchCV(case.make(), {}, cv=2, error_score="raise").fit(*frame.arguments())
        assert list(search.best_estimator_.feature_names_in_) == COLUMNS[case.data]
        pipeline = sd.table_pipeline(case.make(), scale=False).fit(*frame.arguments())
        assert list(pipeline["model"].feature_names_in_) == COLUMNS[case.data]
        read = pipeline.predict if hasattr(pipeline, "predict") else pipeline.transform
        np.testing.assert_array_equal(read(OTHER_COLUMNS["permuted"](frame.X)), read(frame.X))
        for form in ("renamed", "missing"):
            with pytest.raises(DataError, match=r"(c|word)1"):
                read(OTHER_COLUMNS[form](frame.X))
        with pytest.raises(DataError):
            search.score(OTHER_COLUMNS["permuted"](frame.X), frame.y)
