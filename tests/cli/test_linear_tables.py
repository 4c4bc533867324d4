"""CSV files on the command line: what they are read as, and what is said of those that cannot be."""

import bz2
import gzip
import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as LogisticPeer
from sklearn.linear_model import PoissonRegressor as PoissonPeer
from sklearn.linear_model import Ridge as RidgePeer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import stradask as sd
from stradask.cli.arguments import main

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4)).round(3)
Y = (2 * X[:, 1] - X[:, 3] + 0.1 * RNG.standard_normal(60)).round(3)
NAMES = ["age", "height", "own", "third"]


def table(header=True, separator=",", target=Y, at=2):
    """The text of a table whose column `at` holds the targets."""
    rows = [list(map(str, row)) for row in X.tolist()]
    for row, value in zip(rows, target, strict=True):
        row.insert(at, str(value))
    names = NAMES.copy()
    names.insert(at, "price")
    return "\n".join(map(separator.join, [names, *rows] if header else rows)) + "\n"


def fit(model, data, *options):
    return main(["fit", model, str(data), "--quiet", *map(str, options)])


def fails(capsys, model, data, *options):
    assert fit(model, data, *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("header", "target"), [(True, "price"), (True, "2"), (True, "-3"), (False, "2"), (False, "-3")]
)
def test_a_table_is_what_its_numbers_are(tmp_path, capsys, separator, header, target):
    path = tmp_path / "prices.csv"
    path.write_text(table(header, separator))
    assert fit("lasso", f"{path}:{target}", "--json", "--param", "alpha=0.05") == 0
    found = json.loads(capsys.readouterr().out)
    lasso = sd.Lasso(0.05).fit(X, Y)
    assert found["data"] == {
        "source": f"{path}:{target}",
        "rows": 60,
        "columns": 4,
        "nonzeros": np.count_nonzero(X),
    }
    order = np.argsort(-abs(lasso.coef_), kind="stable")[: np.count_nonzero(lasso.coef_)]
    assert [entry["coefficient"] for entry in found["largest"]] == pytest.approx(lasso.coef_[order])
    assert [entry["column"] for entry in found["largest"]] == order.tolist()
    if header:
        assert [entry["name"] for entry in found["largest"]] == [NAMES[k] for k in order]


@pytest.mark.parametrize(("ending", "pack"), [("csv.gz", gzip.compress), ("tsv.bz2", bz2.compress)])
def test_tables_may_be_packed_have_quotes_crlf_a_mark_and_empty_lines(tmp_path, capsys, ending, pack):
    text = "\n" + table().replace("age,", '"age, in\nyears",').replace("\n0", "\n\n0").replace("\n", "\r\n")
    path = tmp_path / f"prices.{ending}"
    path.write_bytes(pack(b"\xef\xbb\xbf" + text.encode()))
    assert fit("lasso", f"{path}:price", "--json", "--param", "alpha=0.05") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"]["rows"] == 60
    assert found["training"]["r2"] == pytest.approx(sd.Lasso(0.05).fit(X, Y).score(X, Y))


@pytest.mark.parametrize(
    ("name", "target", "peer"),
    [
        ("ridge", Y, RidgePeer(30)),
        ("logistic", (Y > 0).astype(float), LogisticPeer(tol=1e-10)),
        ("poisson", (Y > 0).astype(float), PoissonPeer(tol=1e-10)),
    ],
)
def test_standardised_columns_give_the_model_of_a_pipeline_with_a_scaler(tmp_path, name, target, peer):
    wide = X * np.logspace(-2, 3, X.shape[1]) + 4
    path, model = tmp_path / "wide.csv", tmp_path / "model.npz"
    rows = np.column_stack([wide, target])
    np.savetxt(path, rows, delimiter=",", header=",".join([*NAMES, "y"]), comments="", fmt="%.17g")
    penalty = ["--alpha", "30"] if name == "ridge" else []
    assert fit(name, f"{path}:y", *penalty, "--tol", "1e-10", "--standardize", "--save", model) == 0
    expected = make_pipeline(StandardScaler(), peer).fit(wide, target)
    method = "predict_proba" if name == "logistic" else "predict"
    found = getattr(sd.load(model), method)(wide)
    np.testing.assert_allclose(found, getattr(expected, method)(wide), atol=2e-5)


def test_what_is_given_twice_is_refused(tmp_path, capsys):
    path = tmp_path / "prices.csv"
    path.write_text(table())
    err = fails(capsys, "lasso", f"{path}:price", "--alpha", "0.1", "--param", "alpha=0.2")
    assert "alpha is given twice, as 0.2 and as 0.1" in err
    err = fails(capsys, "ridge", f"{path}:price", "--standardize", "--param", "standardize=False")
    assert "--standardize: give it once" in err
    err = fails(capsys, "lasso", f"{path}:price", "--n-jobs", "2", "--n_jobs", "1")
    assert "n_jobs is given twice" in err


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_the_error_for_another_encoding_names_the_command_that_converts(tmp_path, capsys, encoding):
    path = tmp_path / "prices.csv"
    path.write_bytes(table().replace("age", "âge").encode(encoding))
    err = fails(capsys, "lasso", f"{path}:price")
    assert "line 1: not UTF-8 text" in err
    assert f"iconv -f {'UTF-16' if encoding == 'utf-16' else 'WINDOWS-1252'} -t UTF-8" in err


@pytest.mark.parametrize("kind", ["text", "numbers", "no header"])
def test_labels(tmp_path, capsys, kind):
    labels = np.where(Y > 0, "yes", "no") if kind != "numbers" else np.where(Y > 0, 1, -1)
    path = tmp_path / "buys.csv"
    path.write_text(table(target=labels, header=kind != "no header"))
    data = f"{path}:{2 if kind == 'no header' else 'price'}"
    assert fit("sparse-logistic", data, "--json", "--test-size", "0.25", "--param", "alpha=0.01") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"]["classes"] == sorted(set(labels.tolist()))
    assert found["test"]["accuracy"] > 0.8


def test_predictions_hold_columns_against_those_of_the_model(tmp_path, capsys):
    path, model, out = tmp_path / "prices.csv", tmp_path / "model.npz", tmp_path / "out.npy"
    path.write_text(table())
    assert fit("lasso", f"{path}:price", "--save", model, "--param", "alpha=0.05") == 0
    elsewhere = tmp_path / "new.csv"
    elsewhere.write_text(table(at=0))  # the target stands elsewhere, the other columns as before
    assert main(["predict", str(model), f"{elsewhere}:price", "--out", str(out), "--quiet"]) == 0
    np.testing.assert_allclose(np.load(out), sd.Lasso(0.05).fit(X, Y).predict(X))
    capsys.readouterr()
    elsewhere.write_text(table().replace("height,", "breadth,"))
    assert main(["predict", str(model), f"{elsewhere}:price"]) == 2
    err = capsys.readouterr().err
    assert "column 1 of the model is 'height', that of the file 'breadth'; give the file the model's" in err


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    ("model", "target"), [("lasso", Y), ("sparse-logistic", np.where(Y > 0, "yes", "no"))]
)
def test_rows_without_targets_are_predicted(tmp_path, capsys, model, target, header):
    path, saved, new = tmp_path / "prices.csv", tmp_path / "model.npz", tmp_path / "new.csv"
    path.write_text(table(header, target=target))
    assert fit(model, f"{path}:2", "--save", saved, "--param", "alpha=0.05") == 0
    rows = [",".join(NAMES)] * header + [",".join(map(str, row)) for row in X.tolist()]
    new.write_text("\n".join(rows))
    printed = []
    for data in (new, f"{path}:2"):
        capsys.readouterr()
        assert main(["predict", str(saved), str(data)]) == 0
        printed.append(capsys.readouterr())
    assert printed[0].out == printed[1].out
    assert "against the targets" in printed[1].err
    assert "against the targets" not in printed[0].err
    assert main(["predict", str(saved), str(path)]) == 2
    assert f"is the target, as {path}:COLUMN, or give the model's 4 columns alone" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("target", ["price", "2", "-3"])
def test_the_target_may_be_an_option(tmp_path, capsys, target):
    path, model = tmp_path / "prices.csv", tmp_path / "model.npz"
    path.write_text(table())
    found, predictions = [], []
    for data in ([f"{path}:{target}"], [path, f"--target={target}"]):
        assert fit("lasso", *data, "--json", "--param", "alpha=0.05", "--save", model) == 0
        found.append(json.loads(capsys.readouterr().out))
        assert main(["predict", str(model), *map(str, data)]) == 0
        predictions.append(capsys.readouterr())
    assert found[0] == found[1]
    assert predictions[0] == predictions[1]
    assert len(predictions[0].out.splitlines()) == 61


def test_targets_that_cannot_be_named(tmp_path, capsys):
    path = tmp_path / "prices.csv"
    path.write_text(table())
    cases = {
        ("lasso", f"{path}:price"): "names a column already; leave one of the two out",
        ("lasso", tmp_path / "data.svm"): "data.svm is not the name of a table, FILE.csv or FILE.tsv",
        ("lda", path): "--target: the data of lda have no target column; leave it out",
    }
    for (model, data), message in cases.items():
        assert message in fails(capsys, model, data, "--target", "price")
    assert "no column 'cost' for the target" in fails(capsys, "lasso", path, "--target", "cost")


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("a,b\n1,2\n3,x\n", "a", "line 3, column 'b': 'x' among 1 numbers: correct the cell"),
        ("a,b\n1,2\n3,\n", "a", "column 'b' has 1 cells without a value, the first in line 3"),
        ("a,b\n1,2\n\nx,4\n", "a", "line 4, target 'a': 'x' is not a number"),
        ("1,2\n3,x\n", "0", "line 2, column 1: 'x' is not a number"),
        ("1,2,5\n3,4\n", "0", "line 2: 2 cells, but the first line has 3"),
        ("a,b\n1,nan\n", "a", "X contains NaN in row 0, column 0"),
        (
            "a,b\n1,2\n",
            None,
            "say which column of {path} is the target, as {path}:COLUMN; it has the columns 'a'",
        ),
        ("a,b\n1,2\n", "c", "no column 'c' for the target; it has the columns 'a', 'b'"),
        ("1,2\n3,4\n", "2", "no column '2' for the target; it has no header and 2 columns"),
        ("a,b,a\n1,2,3\n", "a", "two columns 'a': columns are known by their names; rename one"),
        ("a,a,y\n1,2,3\n", "y", "two columns 'a': columns are known by their names; rename one"),
        ("a\n1\n", "a", "a target and one column or more are needed"),
        ("a,b\n", "a", "holds a header and no rows"),
        ("\n\n", "a", "holds no line but empty ones"),
        ("a,b\n\xff,2\n", "a", "not UTF-8 text"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, capsys, text, target, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(text.encode("latin-1"))
    err = fails(capsys, "lasso", path if target is None else f"{path}:{target}")
    assert message.format(path=path) in err


@pytest.mark.parametrize("cell", ["", "nan", "-inf"])
def test_a_label_that_is_missing_is_shown(tmp_path, capsys, cell):
    path = tmp_path / "bad.csv"
    path.write_text(f"a,kind\n1,yes\n2,no\n3,{cell}\n")
    err = fails(capsys, "sparse-logistic", f"{path}:kind")
    assert "line 4, column 1 ('kind'): " in err
    assert ("the cell is empty" if not cell else f"{cell!r} is not a label") in err


def test_other_mistakes(tmp_path, capsys):
    assert "cannot be opened" in fails(capsys, "lasso", tmp_path / "none.csv:price")
    path = tmp_path / "prices.csv"
    path.write_text(table())
    assert "is what is read" in fails(capsys, "lasso", f"{path}:price", "--save", path)
    (tmp_path / "names").write_text("a\nb\nc\nd\n")
    assert "has a header" in fails(capsys, "lasso", f"{path}:price", "--vocab", tmp_path / "names")
