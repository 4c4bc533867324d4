"""Messages of the data sets, the scheduler and the command line show no long value of the caller's."""

import inspect
import warnings

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask import datasets, scheduler
from stradask.cli.arguments import main
from stradask.errors import in_brief, shortened

TEXT = "nonsense " * 1200
LONG = [TEXT, TEXT.encode(), [TEXT] * 3, list(range(5000)), {TEXT: TEXT}, np.arange(5000.0), 10**3000]
R = sparse.csr_array(np.arange(12.0).reshape(4, 3))
RATINGS, COUNTS, ROWS = "user,item,rating\n1,2,3\n", "2\n3\n2\n1 1 1\n2 3 2\n", "1 1:2.5\n-1 2:1\n"

LISTING = {"download": 440, "fetch_libsvm": 380}  # names of what there is come with the value
DOORS = {
    "catalogue": (datasets.catalogue, {}),
    "describe_file": (datasets.describe_file, {"path": "ratings.csv"}),
    "download": (datasets.download, {"name": "no such name", "data_home": "home"}),
    "fetch_libsvm": (datasets.fetch_libsvm, {"name": "no such name", "data_home": "home"}),
    "fetch_movielens": (datasets.fetch_movielens, {"size": "no such size", "data_home": "home"}),
    "fetch_uci_bow": (datasets.fetch_uci_bow, {"name": "no such name", "data_home": "home"}),
    "iter_uci_bow": (lambda **given: list(datasets.iter_uci_bow(**given)), {"path": "docword.txt"}),
    "load_docstrings": (datasets.load_docstrings, {"packages": ["json"], "cache": False}),
    "make_lda_corpus": (datasets.make_lda_corpus, {"n_documents": 3, "n_features": 9}),
    "make_ratings": (datasets.make_ratings, {"n_users": 9, "n_items": 9}),
    "make_sparse_classification": (datasets.make_sparse_classification, {"n_samples": 9, "n_features": 30}),
    "make_sparse_regression": (datasets.make_sparse_regression, {"n_samples": 9, "n_features": 30}),
    "rating_split": (datasets.rating_split, {"R": R}),
    "read_idx": (datasets.read_idx, {"path": "ratings.csv"}),
    "read_ratings": (datasets.read_ratings, {"path": "ratings.csv"}),
    "read_svmlight": (datasets.read_svmlight, {"path": "rows.svm"}),
    "read_uci_bow": (datasets.read_uci_bow, {"path": "docword.txt"}),
    "save_uci_bow": (datasets.save_uci_bow, {"X": R, "path": "docword.out.txt"}),
    "split_tokens": (datasets.split_tokens, {"X": R}),
    "balance": (scheduler.balance, {"weights": [1, 2], "n_groups": 1}),
    "run": (scheduler.run, {"program": None, "schedule": None, "max_rounds": 1}),
    "run_replicas": (scheduler.run_replicas, {"function": max, "tasks": [1], "values": np.zeros((1, 1))}),
    "StaticSchedule": (scheduler.StaticSchedule, {}),
    "RotationSchedule": (scheduler.RotationSchedule, {}),
    "DynamicSchedule": (scheduler.DynamicSchedule, {}),
    "Adagrad": (scheduler.Adagrad, {"rate": 0.1}),
    "SimulatedClock": (scheduler.SimulatedClock, {"seconds": [1.0]}),
    "load": (sd.load, {"path": "no such file"}),
    "Posterior.load": (sd.Posterior.load, {"path": "no such file"}),
    "evaluate_ranking": (sd.evaluate_ranking, {"model": sd.MatrixFactorization(), "held_out": R}),
    "recommend": (sd.MatrixFactorization(2, random_state=0).fit(R).recommend, {"users": [0]}),
    "explain": (sd.MatrixFactorization(2, random_state=0).fit(R).explain, {"ratings": R[[0]], "items": 1}),
    "predict": (sd.MatrixFactorization(2, random_state=0).fit(R).predict, {"X": [[0, 1]]}),
    "save": (sd.MatrixFactorization(2, random_state=0).fit(R).save, {"path": "model.npz"}),
}


def folder_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"ratings.csv": RATINGS, "docword.txt": COUNTS, "rows.svm": ROWS}.items():
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize("door", DOORS)
def test_no_function_shows_a_long_value(door, tmp_path, monkeypatch):
    folder_of(tmp_path, monkeypatch)
    call, usual = DOORS[door]
    names = list(usual) if call.__name__ == "<lambda>" else list(inspect.signature(call).parameters)
    for name in names:
        if (door, name) == ("run_replicas", "tasks"):
            continue  # thousands of tasks, of any kind
        for value in LONG:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    call(**usual | {name: value})
                except Exception as error:
                    said = str(error)
                    assert len(said) <= LISTING.get(door, 300), (
                        f"{door}({name}=...), {len(said)} characters: {said[:400]}"
                    )


@pytest.mark.parametrize(
    "words",
    [
        [TEXT],
        ["fit", TEXT, "ratings.csv"],
        ["fit", "mf", TEXT],
        ["fit", "mf", "ratings.csv", "--n-jobs", TEXT],
        ["fit", "mf", "ratings.csv", "--seed", TEXT],
        ["fit", "mf", "ratings.csv", "--test-size", TEXT],
        ["fit", "mf", "ratings.csv", "--param", TEXT],
        ["fit", "mf", "ratings.csv", "--param", f"{'n' * 9000}=1"],
        ["fit", "mf", "ratings.csv", "--param", f"solver={TEXT}"],
        ["fit", "mf", "ratings.csv", "--titles", TEXT],
        ["fit", "mf", "ratings.csv", "--user-features", TEXT],
        ["fit", "mf", "ratings.csv", "--cluster", TEXT],
        ["fit", "lasso", "rows.svm", "--target", TEXT],
        ["sweep", TEXT, "docword.txt"],
        ["bench", TEXT],
        ["data", TEXT],
        ["predict", TEXT, "ratings.csv"],
        ["predict", "model.npz", TEXT],
        ["recommend", "model.npz", "--user", TEXT],
        ["recommend", "model.npz", "--like", TEXT],
        ["recommend", "model.npz", "--user", "1", "--n", TEXT],
        ["recommend", "model.npz", "--map", TEXT],
    ],
    ids=lambda words: " ".join("TEXT" if len(word) > 99 else word for word in words),
)
def test_the_command_line_shows_no_long_value(words, tmp_path, monkeypatch, capsys):
    folder_of(tmp_path, monkeypatch)
    sd.MatrixFactorization(2, random_state=0).fit(R).save(tmp_path / "model.npz")
    capsys.readouterr()
    try:
        status = main(words)
    except SystemExit as left:  # arguments that argparse refuses
        status = left.code
    assert status == 2
    said = capsys.readouterr().err
    assert 0 < len(said) <= 500, said  # the options that there are come with it


def test_what_is_shortened():
    assert shortened("ant") == "'ant'"
    assert len(shortened(TEXT)) == 80
    assert shortened(list(range(5000))) == "5000 values: 0, 1, 2, ..."
    assert "\n" not in shortened(sparse.coo_array((3, 3)))
    assert in_brief("short") == "short"
    brief = in_brief(f"begins {TEXT} ends")
    assert brief.startswith("begins")
    assert brief.endswith("ends")
    assert len(brief) <= 140
