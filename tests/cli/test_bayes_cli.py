"""Bayesian regressions on the command line: what is told, saved and predicted, and of mistakes."""

import json

import numpy as np
import pytest

import stradask as sd
from stradask.cli.arguments import main

MODELS = {
    "bayesian-logistic": ("y", "BayesianLogisticRegression"),
    "bayesian-linear": ("size", "BayesianLinearRegression"),
    "bayesian-poisson": ("count", "BayesianPoissonRegression"),
}
FEW = ["--quiet", "--param", "n_samples=100", "n_warmup=100", "n_chains=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table for each model."""
    path = tmp_path_factory.mktemp("bayes")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    f = X @ [1.0, -0.5]
    targets = {
        "y": np.where(rng.random(300) < 1 / (1 + np.exp(-f)), "yes", "no"),
        "size": f + rng.standard_normal(300),
        "count": rng.poisson(np.exp(f)),
    }
    for name, y in targets.items():
        rows = [f"{a!r},{b!r},{target}" for (a, b), target in zip(X.tolist(), y.tolist(), strict=True)]
        (path / f"{name}.csv").write_text("\n".join([f"age,dose,{name}", *rows]) + "\n")
    return path


def fit(folder, model, *options):
    target = MODELS[model][0]
    return main(["fit", model, f"{folder}/{target}.csv:{target}", *FEW, *map(str, options)])


@pytest.mark.parametrize("model", MODELS)
def test_fit_tells_save_and_predict(folder, model, tmp_path, capsys):
    target, cls = MODELS[model]
    saved = tmp_path / "posterior"
    finite = ["intercept_scale=10.0"]  # which is infinite in a linear regression, and JSON has no infinity
    assert fit(folder, model, "--json", "--save", saved, "--param", *finite) == 0
    document = json.loads(capsys.readouterr().out)
    estimator = sd.load(saved)
    assert type(estimator).__name__ == cls
    posterior = estimator.posterior_
    assert document["draws"] == len(posterior) == 200
    assert document["verdict"] == posterior.diagnostics.verdict
    assert document["shards"] == 1
    summary = {row["parameter"]: row for row in document["summary"]}
    assert list(summary)[:3] == ["coef[age]", "coef[dose]", "intercept"]
    assert summary["coef[dose]"]["mean"] == pytest.approx(posterior.mean()["coef"][1])
    assert summary["coef[dose]"]["sd"] == pytest.approx(posterior.sd()["coef"][1])
    assert [row["figure"] for row in document["diagnostics"]] == posterior.diagnostics.rows
    out = tmp_path / "predictions.npz"
    data = f"{folder}/{target}.csv:{target}"
    assert main(["predict", str(saved), data, "--out", str(out), "--quiet"]) == 0
    X = np.loadtxt(f"{folder}/{target}.csv", delimiter=",", skiprows=1, usecols=(0, 1))
    with np.load(out) as file:
        np.testing.assert_array_equal(file["prediction"], estimator.predict(X))
        if model == "bayesian-logistic":
            np.testing.assert_array_equal(file["probability"], estimator.predict_proba(X))


# Few draws, of which the diagnostics warn; the test is about what is printed.
@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
def test_fit_prints_a_summary_and_the_verdict(folder, capsys):
    assert fit(folder, "bayesian-logistic", "--param", "sampler='nuts'", "--test-size", "0.2") == 0
    out, err = capsys.readouterr()
    assert err == ""
    for part in ("200 draws by nuts", "training", "test", "60 rows", "coef[age]", "5%", "R-hat", "verdict"):
        assert part in out
    assert out.rstrip().splitlines()[-1] in (
        "The draws can be trusted.",
        "Use the draws with care: see the lines marked care.",
        "Do not use these draws: see the lines marked bad.",
    )


# Few draws, of which the diagnostics warn; the test is about what is printed.
@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
def test_long_summaries_are_cut(tmp_path, capsys):
    X = np.random.default_rng(0).standard_normal((200, 30))
    np.savetxt(tmp_path / "wide.csv", np.column_stack([X, X[:, 0] + 0.1 * X[:, 1] ** 2]), delimiter=",")
    assert main(["fit", "bayesian-linear", f"{tmp_path}/wide.csv:30", *FEW]) == 0
    out = capsys.readouterr().out
    assert "coef[18]" in out
    assert "coef[20]" not in out
    assert "and 12 more" in out


def test_a_run_with_files_goes_on(folder, tmp_path, capsys):
    options = ["--json", "--param", "n_shards=2", f"checkpoint={str(tmp_path)!r}", "sampler='nuts'"]
    found = []
    for _ in range(2):
        assert fit(folder, "bayesian-logistic", *options) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["shards"] == 2
        found.append((document["summary"], sorted(tmp_path.iterdir())))
    assert found[0] == found[1]
    assert len(found[0][1]) == 2 * 2 * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["n_shards=301"], "n_shards=301, but there are 300 rows"),
        (["engine='tcp'"], "engine='tcp' is unknown"),
        (["n_shards=2", "sampler='laplace'"], "no combination takes"),
        (["prior='spike'"], "prior"),
        (["n_sample=2"], "has no parameter 'n_sample'"),
    ],
)
def test_mistakes(folder, options, words, capsys):
    assert fit(folder, "bayesian-logistic", "--param", *options) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
