"""Every block of README.md and of the page of the command line runs, with cheaper figures, on little data."""

import re
import shlex
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
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
MAKE, COMMANDS = (
    re.findall(r"^```\n((?:make|stradask) .*?)^```", t, re.DOTALL | re.MULTILINE) for t in (README, PAGE)
)

# What a block says, and what stands for it here so that it runs within seconds.
CHEAPER = {
    "LatentDirichletAllocation(n_components=30,": "LatentDirichletAllocation(n_components=4, max_iter=5,",
    "LatentDirichletAllocation(1000,": "LatentDirichletAllocation(3, max_iter=3,",
    "n_features=102_660": "n_features=40",
    "n_components=30 --save": "n_components=3 max_iter=5 --save",
    "n_components=50": "n_components=3 max_iter=5",
    "--n-components 20 50 100 200": "--n-components 2 3 --repeats 1 --param max_iter=5",
    "slda reviews.csv:text": "slda reviews.csv:text --n-components 3 --max-iter 5",
    "--item 260": "--item 3",
    "s3://bucket/": "bucket/",
}


def cheaper(text, address=""):
    for said, instead in CHEAPER.items():
        text = text.replace(said, instead)
    return text.replace("tcp://scheduler:8786", address).replace("tcp://host:8786", address)


def test_the_blocks_are_those_that_are_run():
    assert len(PYTHON) == 3
    assert len(MAKE) == len(COMMANDS) == 1
    assert README.count("```") == 2 * (len(PYTHON) + len(MAKE) + 2)  # and what the first two print


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
    for name in ("data.svm", "new.svm", "held-out.svm"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    pairs = {(int(u), int(i)) for u, i in rng.integers((40, 0), (60, 15), size=(300, 2))}
    rows = [f"{u},{i},{1 + (u * i) % 5}" for u, i in sorted(pairs)]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,item,rating", *rows]) + "\n")
    (tmp_path / "movies.csv").write_text("".join(["item,title\n", *(f"{i},Film {i}\n" for i in range(15))]))
    return tmp_path


def test_topics_of_texts(corpus, monkeypatch, capsys):
    counts, vocabulary = sd.datasets.load_docstrings()
    monkeypatch.setattr(sd.datasets, "load_docstrings", lambda: (counts[:300], vocabulary))
    exec(compile(cheaper(PYTHON[0]), "README.md", "exec"), {})
    assert "topic  share  words" in capsys.readouterr().out
    assert sd.load("topics.npz").n_components == 4


def test_linear_models_and_posteriors_print_what_the_page_says(capsys):
    pytest.importorskip("matplotlib")
    exec(compile(PYTHON[1], "README.md", "exec"), {})
    assert f"```\n{capsys.readouterr().out}```" in README


@pytest.mark.cluster
def test_topics_on_a_cluster(corpus, address, capsys):
    exec(compile(cheaper(PYTHON[2], address), "README.md", "exec"), {})
    assert "topic  share  words" in capsys.readouterr().out


def test_make_has_the_two_commands():
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for line in MAKE[0].splitlines():
        command = line.partition("#")[0].split()
        done = subprocess.run([*command, "--dry-run"], cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.cluster
def test_every_line_of_the_command_line(corpus, address, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    from stradask.benchmarks import ceilings, recipes
    from stradask.benchmarks.scheduling import ssp

    counts, vocabulary = sd.datasets.load_docstrings()
    notes = [" ".join(vocabulary[j] for j in counts[[row]].indices) for row in range(0, counts.shape[0], 4)]
    (corpus / "notes.txt").write_text("\n".join(notes))
    reviews = "".join(f'"{note}",{1 + k % 5}\n' for k, note in enumerate(notes[:200]))
    (corpus / "reviews.csv").write_text("text,stars\n" + reviews)
    rng = np.random.default_rng(0)
    clicks = pd.DataFrame({"hour": rng.integers(24, size=200), "clicked": rng.random(200) < 0.5})
    (corpus / "bucket" / "clicks").mkdir(parents=True)
    clicks.to_parquet(corpus / "bucket" / "clicks" / "1.parquet")
    monkeypatch.setattr(recipes, "QUICK", ("ssp --param cluster=False threads=False",))
    monkeypatch.setattr(sd.datasets, "download", lambda name, **_: [corpus / f"docword.{name}.txt.gz"])
    monkeypatch.setattr(ssp, "QUICK", {"n": 200, "p": 4, "clocks": 20})
    monkeypatch.setattr(ceilings, "MEGABYTES", 1)
    monkeypatch.setattr(ceilings, "rounds", lambda: {"task_ms": 1.0, "round_ms": 2.0})
    lines = [line.partition("#")[0] for line in cheaper(COMMANDS[0], address).splitlines()]
    commands = [shlex.split(command) for line in lines for command in line.split(";")]
    assert len(commands) == 21
    for words in commands:
        assert words[0] == "stradask"
        assert main(words[1:]) == 0, " ".join(words)
    for made in ("kos.npz", "kos-topics", "shares.csv", "sparse.npz", "mf.npz", "stradask-bench/report.html"):
        assert (corpus / made).exists()
    printed = capsys.readouterr().out
    assert "copying" in printed
