"""`table_pipeline` against the steps of scikit-learn that it stands for, on frames of several libraries."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV

import stradask as sd
from stradask.errors import DataError

pandas = pytest.importorskip("pandas")


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 80
    frame = pandas.DataFrame(
        {
            "id": [f"C{i}" for i in range(n)],
            "age": rng.integers(18, 80, n).astype(float),
            "member": rng.random(n) < 0.5,
            "plan": rng.choice(["a", "b", "c"], n),
            "post": rng.choice([1234, 90210], n),
            "since": pandas.date_range("2024-01-01", periods=n),
            "note": rng.choice(
                ["wants a refund", "all is well with this customer and will be for long " * 3], n
            ),
        }
    )
    frame.loc[::9, "age"] = np.nan
    frame.loc[3::11, ["plan", "note"]] = None
    return frame


def by_hand(frame):
    """The matrix, and names of its columns."""
    age = frame["age"].fillna(frame["age"].median()).to_numpy()
    numbers = np.column_stack([age, frame["member"]]).astype(float)
    numbers = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    plans = frame["plan"].to_numpy(dtype=object, na_value="missing")
    one_hot = [plans == value for value in ("a", "b", "c", "missing")]
    one_hot += [frame["post"] == value for value in (1234, 90210)]
    notes = frame["note"].to_numpy(dtype=object, na_value="")
    words = TfidfVectorizer()
    X = np.column_stack([numbers, *one_hot, words.fit_transform(notes).toarray()])
    names = ["age", "member", "plan_a", "plan_b", "plan_c", "plan_nan", "post_1234", "post_90210"]
    return X, names + [f"note: {word}" for word in words.get_feature_names_out()]


def fitted(frame, model=None):
    y = np.where(np.arange(len(frame)) % 3 == 0, "yes", "no")
    model = sd.LogisticRegression() if model is None else model
    options = {"drop": ["id", "since"], "texts": ["note"], "categories": ["post"], "impute": True}
    return sd.table_pipeline(model, **options).fit(frame, y), y


@pytest.mark.parametrize("kind", ["plain", "nullable", "polars"])
def test_the_matrix_is_that_of_the_steps_by_hand(frame, kind):
    X, names = by_hand(frame)
    if kind == "nullable":
        frame = frame.convert_dtypes()
    if kind == "polars":
        polars = pytest.importorskip("polars")
        # Row by row, since the conversion from pandas needs pyarrow.
        rows = frame.astype(object).where(frame.notna(), None).to_dict("list")
        frame = polars.DataFrame(rows, strict=False)
    pipeline, y = fitted(frame)
    found = pipeline["table"].transform(frame)
    found = found.toarray() if hasattr(found, "toarray") else found
    np.testing.assert_allclose(found.astype(float), X, atol=1e-12)
    assert pipeline["table"].get_feature_names_out().tolist() == names
    assert set(pipeline.predict(frame)) <= set(y)


def test_new_values_are_no_category_and_parameters_are_searched(frame):
    pipeline, y = fitted(frame)
    new = frame.iloc[:2].assign(plan="d", note="unseen words only")
    with pytest.warns(
        UserWarning, match=r"values that fit did not see count as no category: 'plan' \(2, such as 'd'\)"
    ):
        cells = pipeline["table"].transform(new)
    cells = cells.toarray() if hasattr(cells, "toarray") else np.asarray(cells)
    np.testing.assert_array_equal(cells[:, 2:6], 0)
    np.testing.assert_array_equal(cells[:, 8:], 0)
    pipeline["table"].transform(frame)  # no warning
    search = GridSearchCV(clone(pipeline), {"model__C": [0.1, 1.0]}, cv=2).fit(frame, y)
    assert search.best_params_["model__C"] in (0.1, 1.0)


def test_all_columns_that_cannot_be_used_are_named_with_what_to_pass(frame):
    frame = frame.assign(empty=None, tags=[["x"]] * len(frame))
    with pytest.raises(DataError) as caught:
        sd.table_pipeline(sd.LogisticRegression()).fit(frame, frame["member"])
    message = str(caught.value)
    for said in (
        "'id' has 80 different values",
        "'age' has 9 missing values",
        "'since' holds dates",
        "drop=['id', 'since', 'empty', 'tags']",
        "texts=['note']",
        "impute=True",
    ):
        assert said in message
    arguments = eval("dict(" + message.split("(..., ")[1])  # the advice, as a user would copy it
    sd.table_pipeline(sd.LogisticRegression(), **arguments).fit(frame, frame["member"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop": "id"}, "give a list of names"),
        ({"drop": ["idd"]}, "did you mean 'id'"),
        ({"texts": ["notes"]}, "texts: X has no column 'notes'"),
        ({"drop": ["note"], "texts": ["note"]}, "'note' is in drop and in texts"),
        ({"texts": ["post"]}, "texts: the column 'post' holds .* no text"),
    ],
)
def test_wrong_arguments_are_named(frame, options, message):
    with pytest.raises(DataError, match=message):
        sd.table_pipeline(sd.Ridge(), **options).fit(frame, frame["post"])


def test_cells_that_are_arrays_are_named():
    import pandas as pd

    table = pd.DataFrame({"a": [1.0, 2, 3], "v": [None, *np.ones((2, 2))]})
    with pytest.raises(DataError, match="'v' holds lists"):
        sd.table_pipeline(sd.Ridge()).fit(table, [1, 2, 3])


def test_an_array_is_no_frame():
    with pytest.raises(DataError, match="not a frame"):
        sd.table_pipeline(sd.Ridge()).fit(np.ones((3, 2)), np.ones(3))


def test_missing_categories_that_fit_had_none_of_are_said():
    frame = pandas.DataFrame({"plan": ["a", "b"] * 5, "age": np.arange(10.0), "town": ["x", "y"] * 5})
    pipeline = sd.table_pipeline(sd.Ridge()).fit(frame, frame.age)
    new = frame[:4].assign(plan=["a", None, None, "b"])
    with pytest.warns(UserWarning, match=r"rows without a value .* no category: 'plan' \(2\)$") as caught:
        X = pipeline["table"].transform(new).to_numpy()
    assert len(caught) == 1
    assert X[1:3, 1:3].sum() == 0
    with_none = sd.table_pipeline(sd.Ridge(), impute=True).fit(new, new.age)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_none.predict(new)
        pipeline.predict(frame)


def test_texts_are_cut_into_words_as_by_text_counts():
    frame = pandas.DataFrame({"note": ["2nd covid19 हिन्दी", "3.14 covid19", None, "x 7"]})
    pipeline = sd.table_pipeline(sd.LogisticRegression(), texts=["note"]).fit(frame, [0, 1, 0, 1])
    words = pipeline["table"].get_feature_names_out().tolist()
    assert words == [f"note: {word}" for word in ("2nd", "3.14", "covid19", "हिन्दी")]
    frame["note"] = ["a", "b", "7", ""]
    with pytest.raises(DataError, match="holds no word of two letters or digits: name it in drop"):
        sd.table_pipeline(sd.LogisticRegression(), texts=["note"]).fit(frame, [0, 1, 0, 1])
    frame["note"] = ["我爱北京天安门", "天安门上太阳升"] * 2
    with pytest.raises(DataError, match="clauses of a script without spaces"):
        sd.table_pipeline(sd.LogisticRegression(), texts=["note"]).fit(frame, [0, 1, 0, 1])
