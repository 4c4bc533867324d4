"""The command line: what it says of mistakes, of files that cannot be written, and when it is interrupted."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from command_lines import run_fit

import stradask as sd
from stradask import datasets
from stradask.cli.arguments import explain, main


# Output files are checked before the work -----------------------------------------------------------
@pytest.fixture
def no_fit(monkeypatch):
    def fit(self, X):
        raise AssertionError("the fit was started")

    monkeypatch.setattr(sd.LatentDirichletAllocation, "fit", fit)


@pytest.mark.usefixtures("no_fit")
def test_save_is_checked_before_the_fit(corpus, tmp_path, capsys):
    folder, _ = corpus
    foreign = tmp_path / "thesis.npz"
    np.savez(foreign, a=np.ones(3))
    before = foreign.read_bytes()
    wrong = {
        str(tmp_path / "none" / "model"): "does not exist",
        str(tmp_path): "is a folder",
        str(foreign): "was not written by this command",
        str(folder / "docword"): "is what is read",
    }
    for path, reason in wrong.items():
        assert run_fit(folder, "--save", path) == 2
        assert reason in one_line(capsys)
    assert foreign.read_bytes() == before


@pytest.mark.usefixtures("no_fit")
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that even root cannot write to")
def test_a_folder_that_takes_no_files(corpus, capsys):
    folder, _ = corpus
    assert run_fit(folder, "--save", "/proc/self/model") == 2
    assert "cannot write" in one_line(capsys)


def test_a_model_replaces_a_model(corpus, tmp_path, capsys):
    folder, _ = corpus
    path = tmp_path / "model"
    for seed in ("1", "2"):
        assert run_fit(folder, "--save", str(path), "--random-state", seed) == 0
    assert sd.load(path).random_state == 2
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    capsys.readouterr()


# Mistakes -------------------------------------------------------------------------------------------
def one_line(capsys):
    """Return the one line on stderr; nothing is on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


MISTAKES = {
    "nonsense": "invalid choice: 'nonsense'",
    "fit": "required: MODEL, DATA",
    "data": "required: COMMAND",
    "fit ldaa docstrings": "there are: lda",
    "fit lda nofile": "nofile: cannot be opened",
    "fit lda {folder}": "has no .txt files",
    "fit lda {folder}/vocab": "one word on each line",
    "fit lda {folder}/ratings": "holds ratings; texts or word counts are needed",
    "fit lda {folder}/labels": "fractional",
    "fit lda {folder}/broken": "line 4",
    "fit lda {folder}/foreign.npz": "save_npz",
    "fit lda {folder}/docword --vocab {folder}/docword": "states 60",
    "fit lda {folder}/counts.npz --vocab {folder}/docword": "states 60",
    "fit lda docstrings --vocab {folder}/vocab": "come with their own",
    "fit lda {folder}/docword --param topics=3": "it has n_components, doc_topic_prior",
    "fit lda {folder}/docword --param verbose=3": "no parameter 'verbose'",
    "fit lda {folder}/docword --param n_components=0": "Got 0 instead",
    "fit lda {folder}/docword --param n_components=many": "Got 'many' instead",
    "fit lda {folder}/docword --param n_components": "is not NAME=VALUE",
    "fit --param n_components=3 lda {folder}/docword": "come before --param",
    "fit lda {folder}/docword --param doc_topic_prior=[1,2]": "shape (2,)",
    "fit lda {folder}/docword --n-jobs 0": "-1 for all cores",
    "fit lda {folder}/docword --random-state -1": "from 0",
    "fit lda {folder}/docword --test-size 1": "between 0 and 1",
    "fit lda {folder}/docword --test-size 0.999": "train set will be empty",
    "fit lda {folder}/single --test-size 0.5": "no held-out document has two tokens",
    "topics nofile": "nofile: No such file",
    "topics {folder}/docword": "not a file of stradask",
    "topics {model} --n-words 0": "1 or more",
    "topics {model} --vocab {folder}/docword": "states 60",
    "transform {model} nofile": "nofile",
    "transform {model} {folder}/single": "60 features",
    "transform {model} {folder}/docword --out {folder}/x.txt": "must end in .npz, .npy, .csv",
    "transform {model} {folder}/docword --out {model}": "is what is read",
    "transform {folder}/unfitted.npz {folder}/docword": "not fitted",
    "data get nothing": "'nothing' is not known",
    "fit lasso {folder}/docword --cluster tcp://x:1 --param engine='local'": "give one of them",
    "data info nofile": "nofile: cannot be opened",
    "demo --out {folder}/docword": "was not written by this command",
    "demo --n-components 0": "1 or more",
    "bench nothing": "there are: implicit, lasso, lda",
    "bench lda --repeats 0": "above 0",
}


@pytest.fixture(scope="module")
def mistaken(corpus, model):
    """Places for the names in MISTAKES."""
    folder, _ = corpus
    (folder / "ratings").write_text("1,2,3.5\n2,3,4\n")
    (folder / "labels").write_text("1 1:0.5 2:2\n0 2:1\n")
    (folder / "broken").write_text("2\n3\n2\n1 1 x\n2 2 1\n")
    (folder / "single").write_text("4\n3\n4\n1 1 1\n2 2 1\n3 3 1\n4 1 1\n")
    np.savez(folder / "foreign.npz", a=np.ones(3))
    sd.LatentDirichletAllocation(3).save(folder / "unfitted.npz")
    return {"folder": folder, "model": model}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(command, mistaken, capsys):
    words = command.format_map(mistaken).split()
    assert main(words + ["--quiet"] * (words[0] in ("fit", "transform"))) == 2
    assert MISTAKES[command] in one_line(capsys)


@pytest.mark.parametrize("words", [["--debug", "topics", "nofile"], ["topics", "nofile", "--debug"]])
def test_debug_shows_the_traceback(words, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Traceback")
    assert "FileNotFoundError" in err.splitlines()[-1]


def test_errors_are_explained():
    assert explain(OSError(28, "No space left on device", "model")) == "model: No space left on device"
    assert "pip install pooch" in explain(ModuleNotFoundError("No module named 'pooch'", name="pooch"))
    assert explain(ValueError("two\n  lines")) == "two lines"
    assert explain(RuntimeError("what")) == "RuntimeError: what (--debug shows where)"
    assert "memory" in explain(MemoryError("Unable to allocate 3 TiB"))


# Ctrl-C and pipes -------------------------------------------------------------------------------------
def test_interrupted_fit_keeps_and_saves_the_model(corpus, tmp_path):
    folder, X = corpus
    path = tmp_path / "model"
    command = [sys.executable, "-m", "stradask", "fit", "lda", folder / "docword", "--save", path, "--json"]
    command += ["--param", "max_iter=100000000", "n_components=3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            seen = [process.stderr.readline() for _ in range(2)]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)
        finally:
            process.kill()
    assert seen[0] == f"reading {folder / 'docword'}\n"
    assert seen[1].startswith("LDA: 1/")
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "stradask: note: LDA was interrupted after" in err
    found = json.loads(out)
    assert found["interrupted"] is True
    lda = sd.load(path)
    assert lda.n_iter_ == found["sweeps"]
    assert lda.word_topic_counts_.sum() == X.sum()


def test_ctrl_c_elsewhere_is_status_130(monkeypatch, capsys):
    def interrupted(path, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "describe_file", interrupted)
    monkeypatch.setattr("stradask.cli.inputs.kind_of", lambda path, **_: "idx")
    assert main(["data", "info", "x"]) == 130
    assert one_line(capsys) == "stradask: interrupted\n"


def test_a_reader_that_has_gone_is_no_error(corpus, model):
    folder, _ = corpus
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "stradask", "transform", model, folder / "docword", "--quiet"]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=300, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
