"""Sparse linear models on the command line: what it prints, saves and predicts, and of mistakes."""

import gzip
import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import stradask as sd
from stradask import datasets
from stradask.cli.arguments import main
from stradask.cli.outputs import Table, put_out, show
from stradask.registry import find_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a regression, two classifications and a corpus."""
    path = tmp_path_factory.mktemp("linear")
    X, y, _ = datasets.make_sparse_regression(120, 40, n_informative=4, density=0.3, random_state=0)
    dump_svmlight_file(X, y, str(path / "regression"), zero_based=False)
    (path / "regression.gz").write_bytes(gzip.compress((path / "regression").read_bytes()))
    dump_svmlight_file(X, np.where(y > 0, 1, -1), str(path / "binary"), zero_based=False)
    dump_svmlight_file(X, np.digitize(y, [-0.5, 0.5]), str(path / "classes"), zero_based=False)
    dump_svmlight_file(X[:7, :30], y[:7], str(path / "narrow"), zero_based=False)
    (path / "names").write_text("".join(f"gene{j}\n" for j in range(40)))
    sparse.save_npz(path / "matrix.npz", X)
    return path


def fit(model, data, *options):
    return main(["fit", model, str(data), "--quiet", *map(str, options)])


def test_fit_prints_what_the_estimator_has(folder, capsys):
    assert fit("lasso", folder / "regression", "--json", "--param", "alpha=0.05") == 0
    found = json.loads(capsys.readouterr().out)
    X, y = datasets.read_svmlight(folder / "regression")
    lasso = sd.Lasso(0.05).fit(X, y)
    assert found["data"] == {
        "source": str(folder / "regression"),
        "rows": 120,
        "columns": 40,
        "nonzeros": X.nnz,
    }
    assert found["dual_gap"] == pytest.approx(lasso.dual_gap_)
    assert found["nonzeros"] == np.count_nonzero(lasso.coef_)
    assert found["coefficients"] == 40
    assert found["training"] == {"r2": pytest.approx(lasso.score(X, y))}
    order = np.argsort(-abs(lasso.coef_), kind="stable")[: min(10, found["nonzeros"])]
    assert [entry["column"] for entry in found["largest"]] == order.tolist()
    assert [entry["coefficient"] for entry in found["largest"]] == pytest.approx(lasso.coef_[order])


def test_fit_prints_text_with_names(folder, capsys):
    options = ["--test-size", "0.25", "--vocab", folder / "names", "--param", "alpha=0.05"]
    assert fit("lasso", folder / "regression.gz", *options) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for part in (
        "90 rows, 40 columns",
        "gap  ",
        "non-zeros",
        "of 40 coefficients",
        "training",
        "30 rows",
        "gene",
    ):
        assert part in out


@pytest.mark.parametrize(("model", "cls"), [("lasso", "Lasso"), ("elastic-net", "ElasticNet")])
def test_held_out_rows_are_judged(folder, model, cls, capsys):
    assert fit(model, folder / "regression", "--json", "--test-size", "0.25", "--param", "alpha=0.02") == 0
    X, y = datasets.read_svmlight(folder / "regression")
    train, test = (np.sort(rows) for rows in train_test_split(np.arange(120), test_size=0.25, random_state=0))
    alone = getattr(sd, cls)(0.02).fit(X[train], y[train])
    assert json.loads(capsys.readouterr().out)["test"] == {"r2": pytest.approx(alone.score(X[test], y[test]))}


@pytest.mark.parametrize(("data", "n_classes"), [("binary", 2), ("classes", 3)])
def test_classes(folder, data, n_classes, capsys):
    options = ["--json", "--test-size", "0.25", "--param", "alpha=0.01"]
    assert fit("sparse-logistic", folder / data, *options) == 0
    found = json.loads(capsys.readouterr().out)
    X, y = datasets.read_svmlight(folder / data)
    train, test = (
        np.sort(rows) for rows in train_test_split(np.arange(120), test_size=0.25, random_state=0, stratify=y)
    )
    alone = sd.SparseLogisticRegression(0.01).fit(X[train], y[train])
    assert found["test"]["accuracy"] == alone.score(X[test], y[test])
    assert found["test"]["log_loss"] == pytest.approx(log_loss(y[test], alone.predict_proba(X[test])))
    assert len(found["data"]["classes"]) == n_classes
    assert {entry.get("class") for entry in found["largest"]} == ({None} if n_classes == 2 else {0, 1, 2})


@pytest.mark.parametrize(
    ("model", "cls", "data"),
    [
        ("lasso-cv", "LassoCV", "regression"),
        ("elastic-net-cv", "ElasticNetCV", "regression"),
        ("sparse-logistic-cv", "SparseLogisticRegressionCV", "binary"),
    ],
)
def test_search_says_what_it_chose(folder, model, cls, data, capsys):
    assert fit(model, folder / data, "--json", "--param", "alphas=8", "rule=1se", "cv=3") == 0
    found = json.loads(capsys.readouterr().out)
    expected = getattr(sd, cls)(alphas=8, rule="1se", cv=3).fit(*datasets.read_svmlight(folder / data))
    assert found["alpha"] == found["alpha_1se"] == pytest.approx(expected.alpha_)
    assert found["alpha_min"] == pytest.approx(expected.alpha_min_)
    assert fit(model, folder / data, "--param", "alphas=8", "cv=3") == 0
    assert "8 tried in 3 folds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "cls", "data"),
    [("logistic", "LogisticRegression", "classes"), ("ridge", "Ridge", "regression")],
)
def test_smooth_models_say_which_solver_they_took(folder, model, cls, data, capsys, tmp_path):
    assert fit(model, folder / data, "--json", "--save", tmp_path / "model.npz") == 0
    found = json.loads(capsys.readouterr().out)
    X, y = datasets.read_svmlight(folder / data)
    alone = getattr(sd, cls)().fit(X, y)
    assert (found["solver"], found["iterations"]) == (alone.solver_, int(np.max(alone.n_iter_)))
    assert alone.score(X, y) in found["training"].values()
    np.testing.assert_array_equal(sd.load(tmp_path / "model.npz").predict(X), alone.predict(X))


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv"])
def test_predictions_are_written(folder, tmp_path, ending, capsys):
    model, out = tmp_path / "model.npz", tmp_path / f"predicted{ending}"
    assert fit("lasso", folder / "regression", "--param", "alpha=0.05", "--save", model) == 0
    capsys.readouterr()
    assert main(["predict", str(model), str(folder / "regression"), "--out", str(out)]) == 0
    printed, err = capsys.readouterr()
    assert "120 predictions in" in printed
    X, y = datasets.read_svmlight(folder / "regression")
    lasso = sd.load(model)
    assert f"R2 {lasso.score(X, y):.4f}" in err
    if ending == ".csv":
        found = np.loadtxt(out, delimiter=",", skiprows=1)[:, 1]
    else:
        found = np.load(out) if ending == ".npy" else np.load(out)["prediction"]
    np.testing.assert_allclose(found, lasso.predict(X), rtol=1e-5)


def test_predictions_of_classes_have_probabilities(folder, tmp_path, capsys):
    model = tmp_path / "model.npz"
    assert fit("sparse-logistic", folder / "binary", "--save", model) == 0
    capsys.readouterr()
    assert main(["predict", str(model), str(folder / "binary")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "row,prediction,probability_of_-1,probability_of_1"
    X, _ = datasets.read_svmlight(folder / "binary")
    logistic = sd.load(model)
    rows = [line.split(",") for line in lines[1:]]
    assert [row[0] for row in rows] == [str(k) for k in range(1, len(rows) + 1)]
    assert [int(row[1]) for row in rows] == logistic.predict(X).tolist()
    np.testing.assert_allclose(np.array(rows, float)[:, 2:], logistic.predict_proba(X), rtol=1e-4)
    assert main(["predict", str(model), str(folder / "binary"), "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prediction"] == logistic.predict(X).tolist()
    np.testing.assert_array_equal(found["probability"], logistic.predict_proba(X))


def test_new_rows_may_lack_the_last_columns(folder, tmp_path, capsys):
    model = tmp_path / "model.npz"
    assert fit("lasso", folder / "regression", "--param", "alpha=0.05", "--save", model) == 0
    capsys.readouterr()
    assert main(["predict", str(model), str(folder / "narrow"), "--json", "--quiet"]) == 0
    X, _ = datasets.read_svmlight(folder / "narrow", n_features=40)
    assert json.loads(capsys.readouterr().out)["prediction"] == sd.load(model).predict(X).tolist()


MISTAKES = {
    "fit lasso {folder}/regression --param alhpa=1": "lasso has no parameter 'alhpa'; it has alpha",
    "fit lasso {folder}/regression --param alpha=-1": "'alpha' parameter of Lasso must be",
    "fit lasso-cv {folder}/regression --param rule=best": "'rule' parameter of LassoCV must be",
    "fit lasso-cv {folder}/regression --param cv=1000": "shuffle=False) cannot divide 120 rows",
    "fit lasso {folder}/matrix.npz": "matrix.npz holds npz; rows with a target each are needed",
    "fit lasso docstrings": "docstrings holds the name docstrings; rows with a target each",
    "fit sparse-logistic {folder}/regression": "Unknown label type",
    "fit sparse-logistic {folder}/regression --test-size 0.2": "--test-size 0.2 cannot divide",
    "predict {folder}/regression {folder}/regression": "regression",
    "predict {topics} {folder}/regression": "holds a LatentDirichletAllocation, which has no predict",
    "transform {lasso} {folder}/regression": "holds a Lasso, which has no transform",
    "topics {lasso}": "holds a Lasso, which has no topics",
    "predict {lasso} {folder}/matrix.npz": "rows with a target each are needed",
    "predict {lasso} {folder}/regression --out x.txt": "must end in .npz, .npy, .csv",
    "predict {narrow} {folder}/regression": "beyond n_features=30",
}


@pytest.fixture(scope="module")
def saved(folder):
    """Paths of models, by name."""
    X, y = datasets.read_svmlight(folder / "regression")
    counts, *_ = datasets.make_lda_corpus(20, 12, 2, random_state=0)
    models = {
        "lasso": sd.Lasso(0.05).fit(X, y),
        "narrow": sd.Lasso(0.05).fit(X[:, :30], y),
        "topics": sd.LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(counts),
    }
    for name, model in models.items():
        model.save(folder / f"{name}.model")
    return {name: folder / f"{name}.model" for name in models}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(command, folder, saved, capsys):
    words = command.format(folder=folder, **saved).split()
    assert main(words + ["--quiet"] * (words[0] in ("fit", "transform", "predict"))) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert MISTAKES[command] in err


def test_help_of_predict_has_examples(capsys):
    assert main(["predict", "--help"]) == 0
    assert "stradask predict model.npz" in capsys.readouterr().out.partition("examples:")[2]


def test_standard_errors_with_the_names_of_columns(tmp_path, capsys):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    y = rng.poisson(np.exp(0.5 * X[:, 0]))
    rows = "".join(f"{a:.6f},{b:.6f},{c}\n" for (a, b), c in zip(X, y, strict=True))
    (tmp_path / "claims.csv").write_text("age,size,claims\n" + rows)
    data = f"{tmp_path}/claims.csv:claims"
    assert fit("glm", data, "--json", "--param", "family='poisson'", "covariance='HC1'") == 0
    found = json.loads(capsys.readouterr().out)
    model = sd.GLM("poisson", covariance="HC1").fit(np.round(X, 6), y)
    by_name = {entry["name"]: entry for entry in found["coefficients"]}
    assert list(by_name) == ["intercept", "age", "size"]
    assert by_name["size"]["std err"] == pytest.approx(model.standard_errors_[1])
    assert fit("glm", data) == 0
    assert "P>|t|" in capsys.readouterr().out
    assert fit("glm", data, "--alpha", "0.1") == 0  # without standard errors
    assert "non-zeros    2 of 2 coefficients" in capsys.readouterr().out


def test_standard_errors_of_tables_with_categories(tmp_path, capsys):
    rng = np.random.default_rng(0)
    towns, y = rng.choice(["Lima", "Oslo", "Rome"], 90), rng.standard_normal(90)
    lines = [f"{town},{k % 2 == 0},{value:.6f}" for k, (town, value) in enumerate(zip(towns, y, strict=True))]
    (tmp_path / "houses.csv").write_text("\n".join(["town,new,price", *lines]) + "\n")
    data, saved = f"{tmp_path}/houses.csv:price", tmp_path / "glm.npz"
    assert fit("glm", data, "--json", "--reference", "town=Oslo", "--save", saved) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reference_levels"] == {"town": "Oslo"}
    by_name = {entry["name"]: entry for entry in found["coefficients"]}
    assert by_name["town=Oslo"]["coef"] == 0
    assert by_name["town=Oslo"]["std err"] is None
    design = np.column_stack([towns == "Lima", towns == "Rome", np.arange(90) % 2 == 0, np.ones(90)])
    coef = np.linalg.lstsq(design.astype(float), np.round(y, 6))[0]
    assert by_name["town=Rome"]["coef"] == pytest.approx(coef[1])
    assert sd.load(saved).reference_levels_ == {"town": "Oslo"}
    for wrong, message in (("town=Paris", "no level 'Paris'"), ("Oslo", "is not CATEGORY=LEVEL")):
        assert fit("glm", data, "--reference", wrong) == 2
        assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of two targets, and of times with events; one column is a category."""
    path = tmp_path_factory.mktemp("tables") / "rows.csv"
    rng = np.random.default_rng(0)
    X = np.round(rng.standard_normal((60, 3)), 4)
    lines = ["a,b,c,sex,y1,y2,time,event"]
    for k, (a, b, c) in enumerate(X):
        y1, y2, time = a + 0.1 * b, 2 * a - b, round(float(np.exp(-a + 0.1 * c)), 4)
        lines.append(f"{a},{b},{c},{'fm'[k % 2]},{y1:.4f},{y2:.4f},{time},{int(k % 4 > 0)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_survival_times_and_events(table, tmp_path, capsys):
    saved = tmp_path / "cox.npz"
    options = ["--drop", "y1", "y2", "--param", "alpha=0.01", "--save", saved]
    assert fit("cox", f"{table}:time,event", "--json", *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["training"]["concordance"] > 0.9
    assert {entry["name"] for entry in found["largest"]} <= {"a", "b", "c", "sex=f", "sex=m"}
    assert found["largest"][0]["name"] == "a"
    assert main(["predict", str(saved), str(table), "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    model = sd.load(saved)
    assert model.n_features_in_ == len(model.coef_) <= 5
    assert len(out["prediction"]) == 60
    options = ["--drop", "y1", "time", "--alpha", "0", "--json"]
    lines = [line.split(",") for line in table.read_text().splitlines()]
    rows = [[*line[:5], str(abs(float(line[5]))) if k else "y2", *line[6:]] for k, line in enumerate(lines)]
    (tmp_path / "times.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    assert fit("cox", f"{tmp_path}/times.csv:y2,event", *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reference_levels"] == {"sex": "f"}
    by_name = {entry["name"]: entry for entry in found["coefficients"]}
    assert by_name["a"]["exp(coef)"] == pytest.approx(np.exp(by_name["a"]["coef"]))
    assert by_name["a"]["std err"] > 0
    assert fit("cox", f"{table}:time,event,y1", "--quiet") == 2
    assert "TIME,EVENT" in capsys.readouterr().err
    assert fit("cox", f"{table}:time") == 2
    assert "TIME,EVENT" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["multi-task-lasso", "multi-task-lasso-cv", "multi-task-elastic-net-cv"])
def test_several_targets(model, table, tmp_path, capsys):
    saved = tmp_path / "tasks.npz"
    given = ["alpha=0.05"] if not model.endswith("cv") else ["alphas=5", "eps=0.01", "cv=3"]
    options = ["--drop", "time", "event", "--save", saved, "--param", *given]
    assert fit(model, f"{table}:y1,y2", *options) == 0
    out = capsys.readouterr().out
    assert "(target 1)" in out
    assert "R2 0.9" in out
    assert main(["predict", str(saved), str(table), "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)["prediction"]
    assert np.shape(predicted) == (60, 2)


def test_groups_chosen_by_cross_validation(table, capsys):
    options = ["--drop", "time", "event", "y2", "sex", "--param", "groups=[0,0,1]", "cv=3", "--json"]
    assert fit("group-lasso-cv", f"{table}:y1", *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["alpha"] in (found["alpha_min"], found["alpha_1se"])


def test_parameters_are_options(folder, tmp_path, capsys):
    """Before or behind the data, with = or without; one without a value is True."""
    regression = folder / "regression"
    fits = [
        ["fit", "lasso", str(regression), "--param", "alpha=0.5", "fit_intercept=False"],
        ["fit", "--alpha", "0.5", "lasso", str(regression), "--fit-intercept=False", "--positive", "--quiet"],
    ]
    for number, fit in enumerate(fits):
        assert main([*fit, "--save", str(tmp_path / f"{number}.npz")]) == 0
    first, other = (sd.load(tmp_path / f"{number}.npz").get_params() for number in range(2))
    assert {name for name in first if first[name] != other[name]} <= {"positive", "verbose"}
    assert (other["alpha"], other["fit_intercept"], other["positive"]) == (0.5, False, True)
    assert main(["fit", "lasso", str(regression), "--alhpa", "1"]) == 2
    assert "lasso has no parameter 'alhpa'; it has alpha" in capsys.readouterr().err
    assert main(["predict", str(tmp_path / "0.npz"), str(regression), "--alpha", "1"]) == 2


def test_models_by_the_names_of_their_estimators():
    assert find_model("matrix-factorization").name == "mf"
    assert find_model("latent-dirichlet-allocation").name == "lda"


def test_classes_for_a_regression_name_the_remedy(tmp_path, capsys):
    (tmp_path / "churn.csv").write_text("age,churned\n1,yes\n2,no\n")
    assert main(["fit", "ridge", f"{tmp_path / 'churn.csv'}:churned"]) == 2
    assert "'yes' is not a number; of classes take a classifier, such as logistic" in capsys.readouterr().err


def test_json_has_numbers_as_numbers_and_null_where_they_are_not_finite(capsys):
    args = SimpleNamespace(json=True, out=None)
    show(
        args,
        {"a": np.inf, "b": np.int64(3), "c": [np.float32("nan"), (np.float64(2),)], "d": np.arange(2)},
        "",
    )
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": 3, "c": [None, [2.0]], "d": [0, 1]}
    for names, found in ((["1", "2"], [1, 2]), (["1", "07"], ["1", "07"])):
        put_out(args, Table("row", names, ["x"], {"x": np.array([0.5, np.nan])}), "")
        assert json.loads(capsys.readouterr().out) == {"rows": found, "x": [0.5, None]}
