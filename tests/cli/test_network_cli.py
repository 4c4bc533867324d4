"""Networks on the command line: what it prints, saves and predicts."""

import json

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import stradask as sd
from stradask import datasets
from stradask.cli.arguments import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("networks")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    dump_svmlight_file(X, y, str(path / "numbers"), zero_based=False)
    dump_svmlight_file(X, np.digitize(y, [-0.5, 0.5]), str(path / "classes"), zero_based=False)
    return path


@pytest.mark.parametrize("name", ["classes", "numbers"])
def test_a_network_is_fitted_saved_and_used(folder, name, tmp_path, capsys):
    model, cls = {
        "classes": ("mlp-classifier", sd.MLPClassifier),
        "numbers": ("mlp-regressor", sd.MLPRegressor),
    }[name]
    options = ["--param", "hidden_layer_sizes=8,5", "learning_rate_init=0.02", "max_iter=400"]
    saved = tmp_path / "network.npz"
    arguments = ["fit", model, str(folder / name), "--quiet", "--save", str(saved), *options]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    X, y = datasets.read_svmlight(folder / name)
    alone = cls((8, 5), learning_rate_init=0.02, max_iter=400, random_state=0).fit(X, y)
    outputs = 3 if name == "classes" else 1
    assert found["layers"] == [4, 8, 5, outputs]
    assert found["network_parameters"] == 4 * 8 + 8 + 8 * 5 + 5 + 6 * outputs
    assert (found["solver"], found["device"]) == ("adam", "cpu")
    assert found["iterations"] == alone.n_iter_
    assert found["loss"] == pytest.approx(alone.loss_)
    score = "accuracy" if name == "classes" else "r2"
    assert found["training"][score] == pytest.approx(alone.score(X, y))
    assert found["training"][score] > 0.75
    assert main([*arguments, "--test-size", "0.2"]) == 0
    out = capsys.readouterr().out
    for part in (f"network      4 - 8 - 5 - {outputs}", "solver       adam", "test", "30 rows"):
        assert part in out
    assert main(["predict", str(saved), str(folder / name), "--quiet", "--out", str(tmp_path / "p.csv")]) == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 151
