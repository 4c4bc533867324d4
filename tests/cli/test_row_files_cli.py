"""Folders, patterns and URLs of files of rows on the command line: fit, score and predict, and mistakes."""

import json

import numpy as np
import pytest

import stradask as sd
from stradask.cli import row_files
from stradask.cli.arguments import main

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
fsspec = pytest.importorskip("fsspec")
RNG = np.random.default_rng(0)
N = 200
FRAME = pandas.DataFrame({"city": RNG.choice(["Oslo", "Rome", "Bern"], N), "age": RNG.normal(size=N)})
FRAME["spent"] = 2 * FRAME.age + (FRAME.city == "Rome") + RNG.normal(size=N)
FRAME["left"] = np.where(FRAME.spent > 0, "yes", "no")
COLUMNS = sorted(FRAME.city.unique())
MATRIX = np.column_stack([*((FRAME.city == name).astype(float) for name in COLUMNS), FRAME.age])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two Parquet files in it, npy and svmlight files next to it; also in memory."""
    from sklearn.datasets import dump_svmlight_file

    made, store = tmp_path_factory.mktemp("rows"), fsspec.filesystem("memory")
    (made / "data").mkdir()
    for k, half in enumerate((slice(0, 80), slice(80, N))):
        path = made / "data" / f"{k}.parquet"
        FRAME[half].to_parquet(path, row_group_size=30)
        store.pipe(f"/cli-rows/{k}.parquet", path.read_bytes())
        np.save(made / f"X{k}.npy", MATRIX[half])
        np.save(made / f"y{k}.npy", FRAME.spent[half])
        dump_svmlight_file(MATRIX[half], FRAME.spent[half], str(made / f"{k}.svm"), zero_based=False)
    yield made
    store.rm("/cli-rows", recursive=True)


def run(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def fails(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


SLOW = [pytest.param(form, marks=pytest.mark.slow) for form in ("{}/data", "memory://cli-rows/*.parquet")]


@pytest.mark.parametrize("form", ["{}/data/*.parquet", *SLOW])
def test_a_folder_a_pattern_and_a_url_of_parquet_files_give_the_model_of_the_rows(folder, capsys, form):
    data, model, out = form.format(folder), folder / "m.npz", folder / "out.npz"
    options = ("--drop", "spent", "--json", "--quiet", "--save", model, "--tol", "1e-10")
    found = json.loads(run(capsys, "fit", "logistic", f"{data}:left", *options))
    here = sd.LogisticRegression(tol=1e-10).fit(MATRIX, FRAME.left)
    named = {f"city={name}": value for name, value in zip(COLUMNS, here.coef_[0], strict=False)}
    named["age"] = here.coef_[0, -1]
    assert {one["name"]: one["coefficient"] for one in found["largest"]} == pytest.approx(named, abs=1e-6)
    assert found["data"]["files"] == 2
    accuracy = here.score(MATRIX, FRAME.left)
    assert found["training"]["accuracy"] == accuracy
    scored = json.loads(run(capsys, "score", model, f"{data}:left", "--json"))
    assert scored["scores"]["accuracy"] == accuracy
    assert json.loads(run(capsys, "score", model, data, "--target", "left", "--json")) == scored | {
        "data": scored["data"] | {"source": data}
    }
    run(capsys, "predict", model, data, "--out", out, "--quiet")
    with np.load(out) as arrays:
        np.testing.assert_array_equal(arrays["prediction"], here.predict(MATRIX))
        np.testing.assert_allclose(arrays["probability"], here.predict_proba(MATRIX), atol=1e-6)


def test_npy_and_svmlight_files_are_fitted_scored_and_predicted(folder, capsys):
    model, here = folder / "l.npz", sd.Lasso(0.1).fit(MATRIX, FRAME.spent)
    for data, target in (("X*.npy", ["--target", f"{folder}/y*.npy"]), ("*.svm", [])):
        data = f"{folder}/{data}"
        run(capsys, "fit", "lasso", data, *target, "--alpha", "0.1", "--save", model, "--quiet")
        scored = json.loads(run(capsys, "score", model, data, *target, "--json"))
        assert scored["scores"]["r2"] == pytest.approx(here.score(MATRIX, FRAME.spent))
        rows = run(capsys, "predict", model, data, "--quiet").splitlines()
        assert len(rows) == N + 1
        np.testing.assert_allclose(
            [float(row.split(",")[1]) for row in rows[1:]], here.predict(MATRIX), atol=1e-5
        )
    assert "--target FILE.npy" in fails(capsys, "score", model, folder / "X0.npy")


def test_shares_of_deviance_are_not_called_r2(folder, capsys):
    frame = FRAME[["age"]].assign(n=np.random.default_rng(0).poisson(2, N), y=FRAME.spent)
    table, here = folder / "counts.csv", sd.PoissonRegressor().fit(frame[["age"]].to_numpy(), frame.n)
    frame.to_csv(table, index=False)
    for name, target, options in (("poisson", "n", ()), ("glm", "n", ("--param", "family='poisson'"))):
        model, drop = folder / f"{name}.npz", ("--drop", "y", "--quiet", "--save")
        run(capsys, "fit", name, f"{table}:{target}", *drop, model, *options)
        scores = json.loads(run(capsys, "score", model, f"{table}:{target}", "--json"))["scores"]
        assert list(scores) == ["d2"]
        if name == "poisson":
            assert scores["d2"] == pytest.approx(here.score(frame[["age"]].to_numpy(), frame.n))
    names = {(loss, sd.SparseGLM(loss)._score_name) for loss in ("squared", "poisson", "gamma", "huber")}
    assert names == {("squared", "R2"), ("poisson", "D2"), ("gamma", "D2"), ("huber", "R2")}
    assert sd.GLM("normal")._score_name == "R2"
    assert sd.SupervisedLDA(response="count")._score_name == "D2"


def test_files_of_the_web_are_not_read_to_see_whether_they_are_folders(monkeypatch):
    asked = []
    monkeypatch.setattr(row_files, "is_folder", asked.append)
    assert row_files.parts_of("https://example.org/a.csv:y") is None
    assert asked == []
    assert row_files.parts_of("https://example.org/a:y") is None
    assert asked == ["https://example.org/a:y", "https://example.org/a"]


def test_a_column_that_a_file_lacks_is_named(folder, capsys):
    some = folder / "some"
    some.mkdir()
    FRAME[["age", "spent"]].to_parquet(some / "0.parquet")
    FRAME[["spent"]].to_parquet(some / "1.parquet")
    assert "1.parquet' has no column 'age', which" in fails(
        capsys, "fit", "lasso", f"{some}:spent", "--quiet"
    )


def test_mistakes_are_named_before_anything_is_fitted(folder, capsys):
    data = f"{folder}/data/*.parquet"
    for arguments, message in (
        (("lasso", data), "which column of"),
        (("lasso", f"{data}:spend"), "no column 'spend'"),
        (("lasso", f"{folder}/data/*.pq:spent"), "matches no file"),
        (("lasso", f"{data}:spent", "--target", "left"), "names a column already"),
        (("lasso", f"{data}:spent", "--drop", "where"), "no column 'where'"),
        (("lasso", data, "--target", "spent", "--drop", "spent"), "--target) both name the column 'spent'"),
        (("lasso", f"{data}:spent", "--impute"), "--impute"),
        (("lasso", f"{data}:spent", "--test-size", "0.5"), "--test-size"),
        (("ridge", f"{data}:spent", "--standardize"), "--standardize"),
        (("lasso", f"{folder}/X*.npy"), "--target: say which npy file"),
        (("lasso", f"{folder}/X*.npy", "--target", "spent"), "is no npy file"),
        (("lasso", f"{folder}/*.svm", "--target", "spent"), "hold their labels"),
        (("lasso", f"{folder}/*.svm", "--drop", "spent"), "have no names"),
    ):
        assert message in fails(capsys, "fit", *arguments, "--quiet"), arguments


def test_a_model_of_a_table_reads_new_parquet_files_by_their_names(folder, capsys):
    data, table, model = folder / "data", folder / "ages.csv", folder / "a.npz"
    FRAME[["age", "spent"]].to_csv(table, index=False)
    run(capsys, "fit", "lasso", f"{table}:spent", "--alpha", "0.1", "--save", model, "--quiet")
    of_table = run(capsys, "score", model, f"{table}:spent", "--quiet")
    assert run(capsys, "score", model, f"{data}:spent", "--quiet") == of_table
    unnamed = sd.Lasso(0.1).fit(MATRIX, FRAME.spent)
    with pytest.raises(sd.errors.DataError, match="not fitted to files of named columns") as error:
        unnamed.score(sd.datasets.ParquetTable(str(data)), "spent")
    assert "ParquetTable" not in str(error.value)
