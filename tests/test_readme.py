"""Every block of README.md runs: as it stands, but with the cheaper figures of a table and on little data."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import stradask as sd
from stradask.cli.arguments import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
SHELL = re.findall(r"^```\n((?:make|stradask) .*?)^```", README, re.DOTALL | re.MULTILINE)

# What a block says, and what stands for it here so that it runs within seconds.
CHEAPER = {
    "LatentDirichletAllocation(n_components=30,": "LatentDirichletAllocation(n_components=4, max_iter=5,",
    "LatentDirichletAllocation(1000,": "LatentDirichletAllocation(3, max_iter=3,",
    "n_features=102_660": "n_features=40",
    "MatrixFactorization(32,": "MatrixFactorization(4,",
    "BayesianLogisticRegression(n_shards=4,": "BayesianLogisticRegression(n_shards=2,",
    "n_components=30 --save": "n_components=3 max_iter=5 --save",
    "n_components=50": "n_components=3 max_iter=5",
    "--n-components 20 50 100 200": "--n-components 2 3 --repeats 1 --param max_iter=5",
}


def cheaper(text, address=""):
    for said, instead in CHEAPER.items():
        text = text.replace(said, instead)
    return text.replace("tcp://scheduler:8786", address).replace("tcp://host:8786", address)


def test_the_blocks_are_those_that_are_run():
    assert len(PYTHON) == 4
    assert len(SHELL) == 2
    assert README.count("```") == 2 * (len(PYTHON) + len(SHELL) + 1)  # and what the first one prints


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A folder with the files that the blocks read, which is the current one."""
    monkeypatch.chdir(tmp_path)
    counts, *_ = sd.datasets.make_lda_corpus(60, n_features=40, n_components=3, random_state=0)
    (tmp_path / "corpus").mkdir()
    for name in ("docword.kos.txt.gz", "new_docword.txt", "corpus/docword.1.txt.gz"):
        sd.datasets.save_uci_bow(counts, tmp_path / name)
    (tmp_path / "vocab.kos.txt").write_text("".join(f"word{i}\n" for i in range(40)))
    rng = np.random.default_rng(0)
    lines = [f"{rng.integers(2)} 1:{rng.random():.3f} {rng.integers(2, 9)}:1" for _ in range(80)]
    for name in ("data.svm", "new.svm"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    pairs = {(int(u), int(i)) for u, i in rng.integers((40, 0), (60, 15), size=(300, 2))}
    rows = [f"{u},{i},{1 + (u * i) % 5}" for u, i in sorted(pairs)]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item,rating", *rows]) + "\n")
    return tmp_path


def names():
    """What the short blocks take for granted."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 6))
    y = (X[:, 0] + rng.logistic(size=200) > 0).astype(int)
    ratings, _ = sd.datasets.make_ratings(60, 30, 3, density=0.3, random_state=0)

    def loss_and_gradient(portion, w):
        X, y = portion
        margin = (2 * y - 1) * (X @ w)
        return np.logaddexp(0, -margin).sum(), -X.T @ ((2 * y - 1) / (1 + np.exp(margin)))

    portions = [(X[:100], y[:100]), (X[100:], y[100:])]
    given = {"X": X, "y": y, "ratings": ratings, "users": [0, 1], "x0": np.zeros(6), "portions": portions}
    return given | {"sd": sd, "loss_and_gradient": loss_and_gradient}


def test_ten_lines(corpus, monkeypatch, capsys):
    counts, vocabulary = sd.datasets.load_docstrings()
    monkeypatch.setattr(sd.datasets, "load_docstrings", lambda: (counts[:300], vocabulary))
    exec(compile(cheaper(PYTHON[0]), "README.md", "exec"), {})
    assert "topic  share  words" in capsys.readouterr().out
    assert sd.load("topics.npz").n_components == 4


# The pages' code with a hundredth of its draws: whether it runs. The warnings have tests of their own.
@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
@pytest.mark.parametrize("number", [1, 2])
def test_linear_models_and_posteriors(number):
    pytest.importorskip("matplotlib")
    given = names()
    exec(compile(cheaper(PYTHON[number]), "README.md", "exec"), given)
    assert "model" in given


@pytest.mark.cluster
def test_recommendations_and_a_cluster(corpus, address):
    given = names()
    exec(compile(cheaper(PYTHON[3], address), "README.md", "exec"), given)
    assert given["mf"].recommend([0], n=10).items.shape == (1, 10)


def test_make_has_the_two_commands():
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for line in SHELL[0].splitlines():
        command = line.partition("#")[0].split()
        done = subprocess.run([*command, "--dry-run"], cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.cluster
def test_every_line_of_the_command_line(corpus, address, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    from stradask.benchmarks import ceilings, recipes, ssp

    monkeypatch.setattr(recipes, "QUICK", ("ssp --param cluster=False threads=False",))
    monkeypatch.setattr(sd.datasets, "download", lambda name, **_: [corpus / f"docword.{name}.txt.gz"])
    monkeypatch.setattr(ssp, "QUICK", {"n": 200, "p": 4, "clocks": 20})
    monkeypatch.setattr(ceilings, "MEGABYTES", 1)
    monkeypatch.setattr(ceilings, "rounds", lambda: {"task_ms": 1.0, "round_ms": 2.0})
    lines = [line.partition("#")[0] for line in cheaper(SHELL[1], address).splitlines()]
    commands = [command.split() for line in lines for command in line.split(";")]
    assert len(commands) == 14
    for words in commands:
        assert words[0] == "stradask"
        assert main(words[1:]) == 0, " ".join(words)
    for made in ("kos.npz", "kos-topics", "shares.csv", "sparse.npz", "mf.npz", "stradask-bench/report.html"):
        assert (corpus / made).exists()
    printed = capsys.readouterr().out
    assert "copying" in printed
