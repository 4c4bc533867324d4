"""Tables with categories and missing cells, against scikit-learn's own encoders."""

import csv
import json

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

import stradask as sd
from stradask.algorithms.inputs.encoding import Encoding
from stradask.cli.arguments import main
from stradask.errors import ModelFileError

HEADER = ["city", "age", "plan", "zip", "joined", "left"]
FIT = ["--drop", "joined", "--param", "C=1.0"]


def rows(n, seed=0, missing=True):
    rng = np.random.default_rng(seed)
    for i in range(n):
        age = rng.integers(18, 80)
        city, plan, zip_ = rng.choice(["Rome", "Oslo", "Bern"]), rng.choice(["a", "b"]), rng.integers(10, 14)
        gone = missing and i % 9 == 0
        label = "yes" if age + 30 * (city == "Oslo") + rng.normal(0, 9) > 60 else "no"
        yield [
            city if i % 11 or not missing else "NA",
            "" if gone else age,
            plan,
            zip_,
            f"2024-01-{i % 28 + 1}",
            label,
        ]


def write(path, made, header=HEADER):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *made])
    return path


def run(capsys, *words):
    status = main([str(word) for word in words])
    return status, *capsys.readouterr()


def encoded(train, test, categories):
    """What scikit-learn makes of the same tables."""
    pandas = pytest.importorskip("pandas")
    frames = [
        pandas.DataFrame(list(made), columns=HEADER).replace({"": np.nan, "NA": np.nan})
        for made in (train, test)
    ]
    numbers = [name for name in ("age", "zip") if name not in categories]
    others = [name for name in ("city", "plan", "zip") if name not in numbers]
    made = ColumnTransformer(
        [("numbers", SimpleImputer(strategy="median"), numbers)]
        + [(name, OneHotEncoder(handle_unknown="ignore", sparse_output=False), [name]) for name in others]
    )
    for frame in frames:
        frame["age"] = frame["age"].astype(float)
    X = made.fit_transform(frames[0])
    gone = [k for k, name in enumerate(made.get_feature_names_out()) if name.endswith("_nan")]
    return [np.delete(Z, gone, axis=1) for Z in (X, made.transform(frames[1]))]


@pytest.mark.parametrize("categories", [[], ["zip"]])
def test_a_fit_and_its_predictions_are_those_of_encoded_columns(tmp_path, capsys, categories):
    train, test = list(rows(300)), list(rows(40, seed=1))
    write(tmp_path / "train.csv", train)
    write(tmp_path / "test.csv", [row[::-1] for row in test], HEADER[::-1])  # found by name
    extra = ["--categories", *categories] if categories else []
    words = ("fit", "logistic", f"{tmp_path}/train.csv:left", "--impute", *FIT, *extra)
    assert run(capsys, *words, "--save", tmp_path / "m.npz")[0] == 0
    out = tmp_path / "p.csv"
    assert run(capsys, "predict", tmp_path / "m.npz", tmp_path / "test.csv", "--out", out)[0] == 0
    X, new = encoded(train, test, categories)
    model = sd.LogisticRegression(C=1.0).fit(X, [row[-1] for row in train])
    probabilities = [float(row["probability_of_yes"]) for row in csv.DictReader(out.open())]
    np.testing.assert_allclose(probabilities, model.predict_proba(new)[:, 1], rtol=1e-4)
    assert set(sd.load(tmp_path / "m.npz").vocabulary_) >= {"city=Oslo", "plan=a", "age"}


def test_unseen_categories_are_counted_and_many_make_a_sparse_matrix(tmp_path, capsys):
    made = [[f"c{i % 40}", i % 7, i % 3 / 2 + (i % 40 == 5)] for i in range(400)]
    write(tmp_path / "t.csv", made, ["code", "n", "y"])
    status, out, _ = run(
        capsys,
        "fit",
        "lasso",
        f"{tmp_path}/t.csv:y",
        "--param",
        "alpha=0.001",
        "--save",
        tmp_path / "m.npz",
        "--json",
    )
    assert (status, json.loads(out)["data"]["columns"]) == (0, 41)
    assert json.loads(out)["data"]["nonzeros"] == 400 + sum(bool(row[1]) for row in made)
    write(tmp_path / "new.csv", [["c5", 0], ["other", 0]], ["code", "n"])
    _, out, err = run(capsys, "predict", tmp_path / "m.npz", tmp_path / "new.csv")
    assert "1 cells hold categories that the model has not seen" in err
    first, second = (float(line.split(",")[1]) for line in out.splitlines()[1:])
    model = sd.load(tmp_path / "m.npz")
    at = list(model.vocabulary_).index("code=c5")
    assert first - second == pytest.approx(model.coef_[at], rel=1e-3)
    assert second == pytest.approx(model.intercept_, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ({}, [], "column 'joined' holds dates, such as '2024-01-1'"),
        ({}, ["--drop", "joined", "nothing"], "--drop: "),
        ({}, ["--drop", "joined", "left"], "--drop and the target (FILE:COLUMN or --target) both name"),
        ({}, ["--drop", "city", "age", "plan", "zip", "joined"], "leaves no column"),
        ({}, ["--drop", "joined", "--categories", "post"], "--categories: "),
        ({1: ""}, FIT, "column 'age' has 1 cells without a value, the first in line 4"),
        ({1: "5O"}, FIT, "line 4, column 'age': '5O' among 59 numbers"),
        ({5: ""}, FIT, "line 4, target 'left': has no value"),
        ({0: "x,y"}, ["--drop", "joined", "--vocab", "v"], "--vocab"),
    ],
)
def test_mistakes_in_a_table(tmp_path, capsys, change, options, said):
    made = list(rows(60, missing=False))
    for column, cell in change.items():
        made[2][column] = cell
    status, _, err = run(capsys, "fit", "logistic", f"{write(tmp_path / 't.csv', made)}:left", *options)
    assert status == 2
    assert said in err.splitlines()[-1]


def test_rows_without_values_keep_their_place_and_are_counted(tmp_path, capsys):
    write(tmp_path / "t.csv", [[i, "ab"[i % 2], i] for i in range(20)], ["n", "kind", "y"])
    model = tmp_path / "m.npz"
    assert run(capsys, "fit", "ridge", f"{tmp_path}/t.csv:y", "--impute", "--save", model)[0] == 0
    (tmp_path / "new.csv").write_text("n,kind\n3,a\n,\n?,NA\n4,b\n")
    _, out, err = run(capsys, "predict", model, tmp_path / "new.csv")
    assert len(out.splitlines()) == 5
    assert "4 missing cells were imputed" in err


def test_a_stray_quote_is_refused(tmp_path, capsys):
    lines = [f"{i},{i}" for i in range(40)]
    lines[20] = '20,"x'
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(lines))
    status, _, err = run(capsys, "fit", "ridge", f"{tmp_path}/t.csv:y")
    assert (status, "quotes in pairs" in err) == (2, True)


@pytest.mark.parametrize("value", ["1,5", "$1,200", "5 %", "1 000", "(3)"])
def test_numbers_as_people_write_them_are_refused(tmp_path, capsys, value):
    path = write(tmp_path / "t.csv", [[value, i] for i in range(9)], ["size", "y"])
    status, _, err = run(capsys, "fit", "ridge", f"{path}:y")
    assert (status, "write numbers with a point" in err) == (2, True)
    assert run(capsys, "fit", "ridge", f"{path}:y", "--categories", "size")[0] == 0


def test_namibia_is_a_category_where_it_is_asked_for_and_none_a_label(tmp_path, capsys):
    made = [[("NA", "DE")[i % 2], ("none", "some")[i % 2]] for i in range(20)]
    path = write(tmp_path / "t.csv", made, ["country", "y"])
    words = ("fit", "logistic", f"{path}:y", "--categories", "country", "--save", tmp_path / "m.npz")
    assert run(capsys, *words)[0] == 0
    assert set(sd.load(tmp_path / "m.npz").vocabulary_) == {"country=NA", "country=DE"}
    status, _, err = run(capsys, "fit", "logistic", f"{path}:y")
    assert (status, "10 cells without a value" in err) == (2, True)


@pytest.mark.parametrize("value", ["x" * 5000, "two\nlines", "\x1b[31m"])
def test_texts_are_no_categories(tmp_path, capsys, value):
    path = write(tmp_path / "t.csv", [[value if i % 2 else "a", i] for i in range(9)], ["kind", "y"])
    status, _, err = run(capsys, "fit", "ridge", f"{path}:y")
    assert (status, "too long or with control characters" in err) == (2, True)
    assert len(err) < 500


def test_columns_of_ids_and_columns_without_values_are_refused(tmp_path, capsys):
    made = [[f"id{i}", "", i, i] for i in range(60)]
    path = write(tmp_path / "t.csv", made, ["id", "empty", "n", "y"])
    for options, said in (
        (
            ["--impute"],
            "2 columns cannot be used as they are: 'id' (60 different values), 'empty' (no values)",
        ),
        (["--impute", "--drop", "empty"], "column 'id' has 60 different values in 60 rows"),
        (["--impute", "--drop", "id"], "column 'empty' has no values at all"),
    ):
        status, _, err = run(capsys, "fit", "lasso", f"{path}:y", *options)
        assert (status, said in err) == (2, True)


def test_new_tables_that_do_not_fit_are_refused(tmp_path, capsys):
    write(tmp_path / "t.csv", rows(60, missing=False))
    model = tmp_path / "m.npz"
    assert run(capsys, "fit", "logistic", f"{tmp_path}/t.csv:left", *FIT, "--save", model)[0] == 0
    good = ["Rome", 30, "a", 11]
    for header, row, said in (
        (["city", "age", "plan"], good[:3], "has no column 'zip'"),
        (HEADER[:4], ["Rome", "old", "a", 11], "line 2, column 'age': 'old' is not a finite number"),
        (HEADER[:4], ["Rome", "", "a", 11], "column 'age' has 1 cells without a value"),
        ([*HEADER[:4], "age"], [*good, 3], "two columns 'age'"),
    ):
        write(tmp_path / "new.csv", [row], header)
        status, _, err = run(capsys, "predict", model, tmp_path / "new.csv")
        assert (status, said in err) == (2, True), err
    (tmp_path / "new.svm").write_text("1 1:2\n")
    status, _, err = run(capsys, "predict", model, tmp_path / "new.svm")
    assert (status, "is no table" in err) == (2, True)


@pytest.mark.parametrize(
    "kept",
    [
        3,
        {},
        {"columns": [{"name": 1, "values": None, "fill": 1.0}], "impute": False},
        {"columns": [{"name": "a", "values": None, "fill": "x"}], "impute": False},
        {"columns": None, "impute": True},
    ],
)
def test_an_altered_file_is_refused(kept):
    with pytest.raises(ModelFileError, match="does not say how its table was read"):
        Encoding.of_dict(kept, 1)


def test_options_of_tables_are_refused_elsewhere(tmp_path, capsys):
    (tmp_path / "d.svm").write_text("1 1:2\n")
    for words in (["lasso", tmp_path / "d.svm", "--impute"], ["lda", "docstrings", "--drop", "a"]):
        status, _, err = run(capsys, "fit", *words)
        assert (status, "for tables" in err) == (2, True)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_columns_of_lists_can_be_left_out_and_true_and_false_are_one_column(tmp_path, capsys, form):
    """Lists and objects by --drop, in new rows without it; one column for truth, as `ParquetTable` has it."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"member": [True, False] * 20, "city": ["Rome", "Oslo", "Bern", "Bern"] * 10})
    frame["y"] = 3.0 * frame.member + (frame.city == "Oslo")
    frame["tags"], frame["place"] = [["x", "y"]] * 40, [{"lat": 1.0}] * 40
    path = tmp_path / f"t.{form}"
    frame.to_parquet(path) if form == "parquet" else frame.to_json(path, orient="records", lines=True)
    fit = "fit", "ridge", f"{path}:y", "--param", "alpha=1e-9"
    status, _, err = run(capsys, *fit)
    assert (status, "leave it out by --drop" in err) == (2, True)
    status, _, err = run(capsys, *fit, "--drop", "tags", "place", "--save", tmp_path / "m.npz")
    assert status == 0, err
    assert list(sd.load(tmp_path / "m.npz").vocabulary_) == ["member", "city=Bern", "city=Oslo", "city=Rome"]
    new = tmp_path / f"new.{form}"
    frame = frame.drop(columns="y")
    frame.to_parquet(new) if form == "parquet" else frame.to_json(new, orient="records", lines=True)
    status, out, err = run(capsys, "predict", tmp_path / "m.npz", new)
    assert status == 0, err
    assert float(out.splitlines()[1].split(",")[-1]) == pytest.approx(3.0, abs=1e-6)


def test_pythons_underscores_are_no_numbers_and_overflow_is_named(tmp_path, capsys):
    """2020_01 is a month, not 202001."""
    path = write(tmp_path / "t.csv", [[f"2020_0{i % 3 + 1}", i % 3] for i in range(30)], ["month", "y"])
    assert run(capsys, "fit", "ridge", f"{path}:y", "--save", tmp_path / "m.npz")[0] == 0
    assert set(sd.load(tmp_path / "m.npz").vocabulary_) == {f"month=2020_0{k}" for k in (1, 2, 3)}
    path = write(tmp_path / "t.csv", [["1e400" if i == 4 else i, i] for i in range(9)], ["size", "y"])
    status, _, err = run(capsys, "fit", "ridge", f"{path}:y")
    assert status == 2
    assert "row 5, column 0 ('size'): the number is infinite, or beyond 1.8e308" in err


def test_figures_of_json_are_numbers(tmp_path, capsys):
    path = write(tmp_path / "t.csv", [[i % 7, i % 5 + i % 2] for i in range(60)], ["a", "y"])
    status, out, _ = run(capsys, "fit", "glm", f"{path}:y", "--param", "family='poisson'", "--json")
    assert status == 0
    figures = json.loads(out)["figures"]
    assert figures.pop("covariance") == "nonrobust"
    assert {"aic", "bic", "log_likelihood", "deviance", "dispersion"} <= set(figures)
    assert all(isinstance(value, float) for value in figures.values())
    status, out, err = run(capsys, "fit", "quantile", f"{path}:y", "--json")
    assert status == 0, err
    assert "d2" in json.loads(out)["training"]
    assert json.loads(out)["training"]["d2"] >= -1e-6
