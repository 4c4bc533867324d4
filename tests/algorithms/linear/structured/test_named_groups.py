"""Groups by the names of columns and categories, against groups of numbers made by hand."""

import numpy as np
import pytest

import stradask as sd
from stradask.errors import DataError

pandas = pytest.importorskip("pandas")


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    n = 120
    frame = pandas.DataFrame(
        {
            "city": rng.choice(["bern", "oslo", "rome"], n),
            "height": rng.standard_normal(n),
            "plan": rng.choice(["basic", "pro"], n),
            "width": rng.standard_normal(n),
        }
    )
    return frame, 2.0 * (frame["city"] == "oslo") + frame["height"] + 0.3 * rng.standard_normal(n)


BY_HAND = {  # columns of X: height, width, bern, oslo, rome, basic, pro
    None: [[0], [1], [2, 3, 4], [5, 6]],
    "category": [[0], [1], [2, 3, 4], [5, 6]],
    "dict": [[0, 1], [2, 3, 4], [5, 6]],
    "list": [[2, 3, 4], [0, 1], [5, 6]],
}
NAMED = {
    None: None,
    "category": "category",
    "dict": {"size": ["height", "width"]},
    "list": ["city", ["height", "width"]],
}


@pytest.mark.parametrize("way", BY_HAND)
@pytest.mark.parametrize("many", [False, True])  # categories, so that X is sparse
def test_names_are_the_numbers_of_their_columns(table, way, many):
    frame, y = table
    by_hand = BY_HAND[way]
    if many:
        frame = frame.assign(zone=np.random.default_rng(1).choice([f"z{k}" for k in range(20)], len(frame)))
        by_hand = [*by_hand, list(range(7, 27))]
    pipeline = sd.table_pipeline(sd.GroupLasso(NAMED[way], alpha=0.1)).fit(frame, y)
    X = pipeline["table"].transform(frame)
    model = sd.GroupLasso(by_hand, alpha=0.1).fit(X.to_numpy() if hasattr(X, "to_numpy") else X, y)
    np.testing.assert_array_equal(pipeline["model"].coef_, model.coef_)
    assert list(pipeline["model"].groups_.values()) == by_hand
    assert hasattr(X, "toarray") == many
    assert 0 < np.count_nonzero(model.coef_) < model.coef_.size


def test_classes_survival_and_second_fits_take_names(table, tmp_path):
    frame, y = table
    named, by_hand = NAMED["dict"], BY_HAND["dict"]
    pipeline = sd.table_pipeline(sd.GroupLogisticRegression(named, alpha=0.02)).fit(frame, y > 0)
    X = pipeline["table"].transform(frame)
    model = pipeline["model"]
    assert np.array_equal(model.coef_, sd.GroupLogisticRegression(by_hand, alpha=0.02).fit(X, y > 0).coef_)
    assert sd.load(model.save(tmp_path / "m.npz") and tmp_path / "m.npz").groups_ == model.groups_
    assert np.array_equal(model.relaxed().fit(X, y > 0).coef_ == 0, model.coef_ == 0)
    hand = [[1], [0], *BY_HAND[None][2:]]
    cox = [sd.CoxRegression(0.05, groups=g).fit(X, np.exp(y.to_numpy())) for g in (["width", "height"], hand)]
    assert list(cox[0].groups_) == ["width", "height", "city", "plan"]
    assert np.array_equal(cox[0].coef_, cox[1].coef_)


def test_halves_and_folds_have_the_groups_of_all_rows(table):
    frame, y = table
    X = sd.table_pipeline(sd.GroupLasso())["table"].fit_transform(frame)
    search, by_hand = (sd.GroupLassoCV(groups).fit(X, y) for groups in (None, BY_HAND[None]))
    np.testing.assert_array_equal(search.scores_, by_hand.scores_)
    assert search.best_estimator_.groups is None
    assert search.groups_ == {"height": [0], "width": [1], "city": [2, 3, 4], "plan": [5, 6]}
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    upper, _ = search.plot()
    assert any("city" in text.get_text() for text in upper.texts)
    halves = sd.StabilitySelection(sd.GroupLasso(alpha=0.1), n_pairs=2, random_state=0).fit(X, y)
    assert len(set(halves.frequencies_[2:5])) == len(set(halves.frequencies_[5:])) == 1


def test_files_keep_categories_whole(table, tmp_path, capsys):
    import json

    from stradask.cli.arguments import main

    pytest.importorskip("pyarrow")
    frame, y = table
    frame = frame.assign(y=y)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = sd.GroupLasso(alpha=0.1).fit(str(tmp_path / "t.parquet"), "y")
    assert model.groups_ == {"city": [0, 1, 2], "height": [3], "plan": [4, 5], "width": [6]}
    assert main(["fit", "group-lasso", f"{tmp_path / 't.csv'}:y", "--alpha", "0.1", "--json"]) in (0, None)
    said = json.loads(capsys.readouterr().out)
    assert said["groups"] == {"chosen": ["city", "height"], "of": 4}
    for entry in said["largest"]:
        np.testing.assert_allclose(entry["coefficient"], model.coef_[entry["column"]], rtol=1e-4)
    X = frame[["height", "width"]].to_numpy()
    assert "groups_" not in vars(model.fit(X, y))  # which has no names


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"a": ["hight"]}, "the group 'a' names 'hight', .* did you mean 'height'?"),
        (["citi"], "did you mean 'city'?"),
        ({"a": []}, "the group 'a' has no columns"),
        ({"a": ["city"], "b": ["city_oslo"]}, "in several groups"),
    ],
)
def test_names_that_are_wrong(table, groups, said):
    frame, y = table
    with pytest.raises(DataError, match=said):
        sd.table_pipeline(sd.GroupLasso(groups)).fit(frame, y)


def test_steps_of_the_table_may_be_changed(table):
    frame, y = table
    pipeline = sd.table_pipeline(sd.GroupLasso(alpha=0.1))
    pipeline.set_params(table__categories__one_hot__drop="first")
    model = pipeline.fit(frame, y)["model"]
    assert model.coef_.shape == (5,)
    assert not hasattr(model, "groups_")  # the columns of a category are not known


def test_names_of_an_array(table):
    X = np.eye(4)
    assert sd.GroupLasso({"a": [0, 2]}, alpha=0.1).fit(X, X[0]).groups_ == {"a": [0, 2], "1": [1], "3": [3]}
    for groups, said in (({"a": ["x"]}, "no names"), ("category", "no names of columns: fit a frame")):
        with pytest.raises(DataError, match=said):
            sd.GroupLasso(groups).fit(X, X[0])
