"""Annotations: every public parameter and result has one, and a type checker takes them as the user does."""

import functools
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import stradask as sd

ROOT = Path(__file__).parents[1]
MODULES = {
    "stradask": sd,
    "stradask.datasets": sd.datasets,
    "stradask.scheduler": sd.scheduler,
    "stradask.priors": sd.priors,
}


def public_functions(module):
    """Functions of a module, and the constructors, methods and properties of its classes that are ours."""
    for name in module.__all__:
        one = getattr(module, name)
        if inspect.isroutine(one):
            yield name, one
        elif inspect.isclass(one) and not issubclass(one, BaseException):
            for attribute, value in inspect.getmembers_static(one):
                if attribute.startswith("_") and attribute != "__init__":
                    continue
                value = value.fget if isinstance(value, property) else getattr(one, attribute, value)
                if inspect.isroutine(value) and (getattr(value, "__module__", "") or "").startswith(
                    "stradask"
                ):
                    yield f"{name}.{attribute}", value


@pytest.mark.parametrize("module", MODULES)
def test_every_public_parameter_and_result_is_annotated(module):
    lacking, n = [], 0
    for name, function in public_functions(MODULES[module]):
        n += 1
        signature = inspect.signature(function)
        some = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
        some += ["return"] * (signature.return_annotation is signature.empty)
        lacking += [f"{name}: {', '.join(some)}"] * bool(some)
    assert n >= 15
    assert not lacking


USER = """
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import stradask as sd

X: NDArray[np.float64] = np.random.default_rng(0).standard_normal((50, 3))
y = X[:, 0] > 0

lasso = sd.Lasso(alpha=0.1)
assert_type(lasso.fit(X, y), sd.Lasso)
assert_type(lasso.fit(X, y).predict(X), NDArray[Any])
assert_type(sd.LassoCV(cv=3).fit(X, y), sd.LassoCV)
assert_type(sd.SparseLogisticRegression().fit(X, y).predict_proba(X), NDArray[Any])
assert_type(sd.LogisticRegression(C=2.0, random_state=0).fit(X, y), sd.LogisticRegression)
assert_type(sd.MLPClassifier((5,)).fit(X, y), sd.MLPClassifier)
assert_type(sd.LatentDirichletAllocation(3).fit(X).transform(X), NDArray[Any])
assert_type(sd.LatentDirichletAllocation(3).fit(X).log_likelihood_, NDArray[Any])
assert_type(sd.MatrixFactorization(4).fit(X).recommend([0]).scores, np.ndarray)

model = sd.BayesianLinearRegression(n_shards="auto").fit(X, y)
assert_type(model, sd.BayesianLinearRegression)
assert_type(model.predict(X), NDArray[Any])
assert_type(model.predict(X, return_std=True), tuple[NDArray[Any], NDArray[Any]])
assert_type(model.posterior_, sd.Posterior)
assert_type(model.save("model.npz"), sd.BayesianLinearRegression)
assert_type(sd.load("model.npz"), Any)

posterior = sd.sample(lambda q, x: float(-(q @ q)), start=[0.0], n_samples=10)
assert_type(posterior, sd.Posterior)
assert_type(posterior.mean(), dict[str, NDArray[Any]])
named = {"beta": sd.real(3), "sigma": sd.positive()}
priors = {"beta": sd.priors.normal(0, 2.5), "sigma": sd.priors.half_cauchy(1)}
assert_type(sd.sample(None, parameters=named, priors=priors), sd.Posterior)
assert_type(sd.Posterior.load("posterior.npz"), sd.Posterior)
assert_type(sd.datasets.read_idx("images"), NDArray[Any])
"""

WRONG = {
    'sd.LogisticRegression(C="2")': "arg-type",
    "sd.sample(lambda q: 0.0, n_samples=1.5)": "arg-type",
    "sd.Lasso(alpa=1.0)": "call-arg",
    "sd.simplex('3')": "arg-type",
    "sd.sample(None, parameters={'a': 1})": "dict-item",
    "sd.Posterior.load(3)": "arg-type",
    "sd.sample(lambda q: 0.0, start=[0.0]).means()": "attr-defined",
    "sd.scheduler.StaticSchedule(size='1')": "arg-type",
}


def laid_out(folder):
    """Put the package into the folder as it is installed, which is how mypy finds it."""
    subprocess.run([sys.executable, ROOT / "tests" / "lint_tree.py", folder], check=True, timeout=300)
    return folder


@functools.cache
def checked(folder, name, text):
    """What mypy in its strict mode says of a user's file; stradask itself is imported, and not judged."""
    file = Path(folder, name)
    file.write_text(text)
    options = ["--strict", "--follow-imports=silent", "--config-file=", "--ignore-missing-imports"]
    command = [sys.executable, "-m", "mypy", *options, f"--cache-dir={folder}/cache", str(file)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("mypy")
    return laid_out(str(tmp_path_factory.mktemp("user")))


def test_a_user_finds_the_types_that_are_promised(folder):
    said = checked(folder, "right.py", USER)
    assert said.startswith("Success"), said


def test_wrong_calls_are_found(folder):
    said = checked(folder, "wrong.py", "import stradask as sd\n" + "\n".join(WRONG) + "\n").splitlines()
    found = {
        int(line.split(":")[1]): line.rpartition("[")[2][:-1] for line in said[:-1] if ": error:" in line
    }
    assert found == dict(enumerate(WRONG.values(), start=2))


def test_the_package_says_that_it_is_typed():
    assert Path(sd.__file__).with_name("py.typed").exists()
    words = (ROOT / "setup.cfg").read_text()
    assert "Typing :: Typed" in words
    assert "stradask = py.typed" in words
