"""The command sweep: its figures, its choice, what it keeps, and what is said of mistakes."""

import json
import os
import signal
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV, KFold, train_test_split

import stradask as sd
from stradask import datasets
from stradask.cli.arguments import main
from stradask.cli.sweep import FIGURES, Row, choice

PARAMS = ["--param", "max_iter=12", "--quiet"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with two small corpora over the same words, and their counts."""
    folder = tmp_path_factory.mktemp("sweep")
    X, *_ = datasets.make_lda_corpus(120, 40, 4, random_state=0)
    datasets.save_uci_bow(X[:100], folder / "docword")
    datasets.save_uci_bow(X[100:], folder / "other")
    sparse.save_npz(folder / "counts.npz", X[:100])
    (folder / "vocab").write_text("".join(f"word{i}\n" for i in range(40)))
    return folder, sparse.csr_matrix(X[:100]), sparse.csr_matrix(X[100:])


def sweep(folder, *options, data="docword"):
    return main(["sweep", "lda", str(folder / data), *PARAMS, *map(str, options)])


def found(capsys):
    """What a sweep with --json printed."""
    return json.loads(capsys.readouterr().out)


def without_seconds(document):
    return [{name: row[name] for name in row if name != "seconds"} for row in document["sweep"]]


@pytest.fixture
def fits(monkeypatch):
    """The K and seed of each fit that was begun."""
    begun = []
    fit = sd.LatentDirichletAllocation.fit

    def counted(self, X, **options):
        begun.append((self.n_components, self.random_state))
        return fit(self, X, **options)

    monkeypatch.setattr(sd.LatentDirichletAllocation, "fit", counted)
    return begun


@pytest.fixture
def quick_picture(monkeypatch):
    """Pictures without ink, which cost no time."""
    from stradask.cli import sweep_picture as _sweep_picture

    monkeypatch.setattr(_sweep_picture, "write", lambda path, *shown: path.write_bytes(b""))


# Figures and choice ---------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [True, False])
def test_figures_are_those_of_the_estimators(corpus, capsys, test):
    folder, X, other = corpus
    judge = ["--test", folder / "other"] if test else ["--held-out", "0.2"]
    options = ["--n-components", 6, 2, "--repeats", 3, "--random-state", 5, "--json", *judge]
    assert sweep(folder, *options) == 0
    document = found(capsys)
    if not test:
        rows = train_test_split(np.arange(100), test_size=0.2, random_state=5)
        X, other = (X[np.sort(part)] for part in rows)
    assert document["data"]["documents"] == X.shape[0]
    assert document["held_out"]["tokens"] == other.sum()
    assert [row["n_components"] for row in document["sweep"]] == [2, 6]
    for row in document["sweep"]:
        models = [
            sd.LatentDirichletAllocation(row["n_components"], max_iter=12, random_state=seed, n_draws=3).fit(
                X
            )
            for seed in (5, 6, 7)  # the command keeps draws, and a short fit that does anneals less
        ]
        perplexities = [model.perplexity(other) for model in models]
        assert row["fits"] == 3
        assert row["perplexity"] == pytest.approx(np.mean(perplexities), rel=1e-12)
        assert row["perplexity_sd"] == pytest.approx(np.std(perplexities, ddof=1), rel=1e-9)
        assert row["coherence"] == pytest.approx(np.mean([model.coherence(X).mean() for model in models]))
        assert row["diversity"] == pytest.approx(np.mean([model.topic_diversity() for model in models]))
        topics = [(model.doc_topic_counts_.toarray() > 0).sum(axis=1).mean() for model in models]
        assert row["topics_per_document"] == pytest.approx(np.mean(topics))
        assert row["seconds"] > 0
    assert (document["records"], document["picture"], document["interrupted"]) == (None, None, False)
    assert document["parameters"]["max_iter"] == 12


def test_documents_without_words_have_no_topics_to_count(tmp_path, capsys):
    X = sparse.csr_matrix(np.repeat([[4, 4, 0, 0], [0, 0, 0, 0], [0, 0, 4, 4]], 5, axis=0))
    sparse.save_npz(tmp_path / "counts.npz", X)
    sparse.save_npz(tmp_path / "test.npz", X[[0, 14]])
    options = ["--n-components", 1, "--repeats", 1, "--test", tmp_path / "test.npz", "--json"]
    assert sweep(tmp_path, *options, data="counts.npz") == 0
    assert found(capsys)["sweep"][0]["topics_per_document"] == 1


def rows_of(*perplexities):
    """A row for each list of perplexities, of K = 10, 20, ..."""
    other = dict.fromkeys(FIGURES, 0.0)
    return [
        Row.of([{**other, "n_components": 10 * k, "perplexity": value} for value in values])
        for k, values in enumerate(perplexities, 1)
    ]


@pytest.mark.parametrize(
    ("perplexities", "best", "smallest"),
    [
        ([], None, None),
        ([[9.0]], 10, None),
        ([[9.0], [8.0]], 20, None),
        ([[9.0, 9.0], [9.0, 9.0]], 10, 10),
        # The standard error of 8, 9, 10, 11 is sqrt(5 / 12) = 0.6455.
        ([[12.0] * 4, [10.1454] * 4, [8.0, 9.0, 10.0, 11.0], [9.6] * 4], 30, 20),
        ([[12.0] * 4, [10.1456] * 4, [8.0, 9.0, 10.0, 11.0], [9.6] * 4], 30, 30),
        ([[10.1], [10.2] * 4, [8.0, 9.0, 10.0, 11.0]], 30, 10),
    ],
)
def test_best_and_smallest_within_one_standard_error(perplexities, best, smallest):
    assert choice(rows_of(*perplexities)) == (best, smallest)


def test_the_table_marks_the_choice(corpus, capsys):
    folder, *_ = corpus
    assert sweep(folder, "--n-components", 2, 3, 20, "--repeats", 2, "--json") == 0
    document = found(capsys)
    assert sweep(folder, "--n-components", 2, 3, 20, "--repeats", 2) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[1].startswith("judged by    10 documents")
    assert lines[3].split()[:4] == ["K", "fits", "perplexity", "sd"]
    for line, row in zip(lines[4:7], document["sweep"], strict=True):
        cells = line.split()
        assert cells[:2] == [str(row["n_components"]), "2"]
        assert cells[2:4] == [f"{row['perplexity']:.1f}", f"{row['perplexity_sd']:.2f}"]
        assert ("best" in line) == (row["n_components"] == document["best"])
        marked = row["n_components"] == document["smallest_within_one_standard_error"]
        assert ("smallest within 1 se" in line) == marked
    assert ("beyond" in out) == (document["best"] in (2, 20))


def test_one_fit_has_no_spread_and_says_so(corpus, capsys):
    folder, *_ = corpus
    assert sweep(folder, "--n-components", 2, "--repeats", 1) == 0
    assert "the best K has one fit, which tells no standard error" in capsys.readouterr().out


def test_progress_is_on_stderr(corpus, capsys):
    folder, *_ = corpus
    command = ["sweep", "lda", str(folder / "docword"), "--param", "max_iter=4", "--json"]
    assert main([*command, "--n-components", "2", "3", "--repeats", "1"]) == 0
    out, err = capsys.readouterr()
    json.loads(out)
    for part in ("reading ", "K = 2, seed 0: fit 1 of 2", "K = 3, seed 0: fit 2 of 2", "LDA: 4/4"):
        assert part in err


# Records --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_picture")
def test_a_fit_that_is_done_is_not_done_again(corpus, tmp_path, capsys, fits):
    folder, *_ = corpus
    out = ["--out", tmp_path / "kept", "--json"]
    assert sweep(folder, "--n-components", 4, 2, "--repeats", 2, *out) == 0
    assert fits == [(2, 0), (2, 1), (4, 0), (4, 1)]
    before = found(capsys)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["records.jsonl", "sweep.png"]
    # The same documents in another file, other threads, another number and another repeat.
    options = ["--n-components", 2, 3, 4, "--repeats", 3, "--n-jobs", 1]
    assert sweep(folder, *options, *out, data="counts.npz") == 0
    assert fits[4:] == [(2, 2), (3, 0), (3, 1), (3, 2), (4, 2)]
    capsys.readouterr()
    assert sweep(folder, "--n-components", 2, 4, "--repeats", 2, *out) == 0
    assert fits[9:] == []
    assert found(capsys)["sweep"] == before["sweep"]
    records = [json.loads(line) for line in (tmp_path / "kept" / "records.jsonl").read_text().splitlines()]
    assert [(record["n_components"], record["seed"]) for record in records] == fits


@pytest.mark.usefixtures("quick_picture")
@pytest.mark.parametrize(
    "other",
    [
        ["--param", "topic_word_prior=0.2"],
        ["--held-out", "0.2"],
        ["--random-state", "1"],
        ["--param", "tol=0.5"],
    ],
)
def test_other_arguments_are_other_fits_and_leave_the_records(corpus, tmp_path, capsys, fits, other):
    folder, *_ = corpus
    options = ["--n-components", 2, "--repeats", 1, "--out", tmp_path, "--json"]
    assert sweep(folder, *options) == 0
    first = found(capsys)
    assert sweep(folder, *options, *other) == 0
    assert len(fits) == 2
    assert found(capsys)["sweep"] != first["sweep"]
    assert sweep(folder, *options) == 0
    assert len(fits) == 2
    assert found(capsys)["sweep"] == first["sweep"]


@pytest.mark.usefixtures("quick_picture")
@pytest.mark.parametrize("where", ["fit", "perplexity"])
def test_ctrl_c_keeps_what_is_done(corpus, tmp_path, capsys, monkeypatch, where):
    folder, *_ = corpus
    options = ["--n-components", 2, 4, "--repeats", 2, "--out", tmp_path / "kept", "--json"]
    assert sweep(folder, *options[:-3], "--json") == 0
    whole = found(capsys)
    with monkeypatch.context() as patch:
        begun, done = [], getattr(sd.LatentDirichletAllocation, where)

        def pressed(self, X):
            begun.append(self)
            if len(begun) < 4:
                return done(self, X)
            if where == "fit":
                return done(self, X, callback=lambda info: signal.raise_signal(signal.SIGINT))
            raise KeyboardInterrupt

        patch.setattr(sd.LatentDirichletAllocation, where, pressed)
        assert sweep(folder, *options) == 130
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["interrupted"] is True
    assert [row["fits"] for row in document["sweep"]] == [2, 1]
    assert without_seconds(document)[0] == without_seconds(whole)[0]
    assert document["picture"] == str(tmp_path / "kept" / "sweep.png")
    assert ("interrupted after 1 of 12" in err) == (where == "fit")
    assert sweep(folder, *options) == 0
    assert without_seconds(found(capsys)) == without_seconds(whole)


def test_ctrl_c_before_anything_is_done(corpus, tmp_path, capsys, monkeypatch):
    folder, *_ = corpus

    def pressed(self, X):
        raise KeyboardInterrupt

    monkeypatch.setattr(sd.LatentDirichletAllocation, "fit", pressed)
    options = ["--n-components", 2, 4, "--out", tmp_path / "kept"]
    assert sweep(folder, *options) == 130
    assert "no fit was finished" in capsys.readouterr().out
    assert not (tmp_path / "kept").exists()


@pytest.mark.usefixtures("quick_picture")
def test_records_are_replaced_at_once(corpus, tmp_path, capsys, monkeypatch):
    folder, *_ = corpus
    options = ["--n-components", 2, "--out", tmp_path, "--repeats"]
    assert sweep(folder, *options, 1) == 0
    before = (tmp_path / "records.jsonl").read_bytes()

    def full(*paths):
        raise OSError(28, "No space left on device", str(paths[1]))

    monkeypatch.setattr(os, "replace", full)
    assert sweep(folder, *options, 2) == 2
    assert "No space left" in capsys.readouterr().err
    assert (tmp_path / "records.jsonl").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records.jsonl", "sweep.png"]


# The picture ----------------------------------------------------------------------------------------


def test_the_picture_shows_the_rows():
    from stradask.cli.sweep_picture import draw

    rows = rows_of([12.0, 13.0], [9.0, 11.0], [10.0])
    figure = draw(rows, 20, 10)
    perplexity, coherence = figure.axes
    (line, *_), (bars,) = perplexity.containers[0][0:1], perplexity.containers[0][2]
    np.testing.assert_array_equal(line.get_xydata(), [[10, 12.5], [20, 10.0], [30, 10.0]])
    ends = np.array(bars.get_segments())[:, :, 1]
    np.testing.assert_allclose(
        ends, [[12.5 - 0.5**0.5, 12.5 + 0.5**0.5], [10 - 2**0.5, 10 + 2**0.5], [10, 10]]
    )
    np.testing.assert_array_equal(coherence.lines[0].get_ydata(), [0, 0, 0])
    names = [text.get_text() for text in perplexity.get_legend().get_texts()]
    assert names == ["best: 20", "smallest within one standard error: 10"]
    assert list(perplexity.get_xticks()) == [10, 20, 30]


@pytest.mark.parametrize(("kind", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_picture_is_written(corpus, tmp_path, capsys, kind, begin):
    folder, *_ = corpus
    options = ["--n-components", 2, "--repeats", 1, "--out", tmp_path, "--format", kind, "--json"]
    assert sweep(folder, *options) == 0
    assert found(capsys)["picture"] == str(tmp_path / f"sweep.{kind}")
    assert (tmp_path / f"sweep.{kind}").read_bytes().startswith(begin)


def test_without_matplotlib_there_is_a_note(corpus, tmp_path, capsys, monkeypatch):
    folder, *_ = corpus
    monkeypatch.delitem(sys.modules, "stradask.cli.sweep_picture", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    command = ["sweep", "lda", str(folder / "docword"), "--param", "max_iter=4", "--json"]
    assert main([*command, "--n-components", "2", "--repeats", "1", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["picture"] is None
    assert "no picture, because matplotlib" in err
    assert "stradask[plot]" in err
    assert [path.name for path in tmp_path.iterdir()] == ["records.jsonl"]


# Mistakes -------------------------------------------------------------------------------------------

MISTAKES = {
    "lda {folder}/docword": "required: --n-components",
    "lda {folder}/docword --n-components 5 20 5": "--n-components: 5 is listed twice",
    "lda {folder}/docword --n-components 5 0": "'0' is not a whole number of 1 or more",
    "lda {folder}/docword --n-components 5 -2": "1 or more",
    "lda {folder}/docword --n-components 5 99999999": "n_components",
    "lda {folder}/docword --n-components 5 --repeats 0": "1 or more",
    "lda {folder}/docword --n-components 5 --held-out 1": "between 0 and 1",
    "lda {folder}/docword --n-components 5 --held-out 0.001": "there is 1 document to judge by; take 2",
    "lda {folder}/docword --n-components 5 --held-out 0.999": "--held-out 0.999 cannot divide",
    "lda {folder}/docword --n-components 5 --held-out 0.1 --test x": "not allowed with",
    "lda {folder}/docword --n-components 5 --test {folder}/one": "--test: there is 1 document",
    "lda {folder}/docword --n-components 5 --test {folder}/short": "--test: no held-out document has two",
    "lda {folder}/docword --n-components 5 --test {folder}/narrow": "narrow has 39 words and",
    "lda {folder}/docword --n-components 5 --test {folder}/docword": "the documents learnt from",
    "lda {folder}/docword --n-components 5 --test nofile": "nofile: cannot be opened",
    "lda nofile --n-components 5": "nofile: cannot be opened",
    "lda {folder}/fractional.npz --n-components 5": "fractional.npz: X holds the fractional value 0.5",
    "lda {folder}/docword --n-components 5 --test {folder}/fractional.npz": "fractional value 0.5",
    "lda {folder}/one-word.npz --n-components 5": "a single word",
    "lda {folder}/docword --n-components 5 --vocab {folder}/docword": "states 40",
    "lasso {folder}/docword --n-components 5": "has no number of topics; there are: lda",
    "ldaa {folder}/docword --n-components 5": "there are: lda",
    "lda {folder}/docword --n-components 5 --param n_components=3": "list the numbers after --n-components",
    "lda {folder}/docword --n-components 5 --param random_state=3": "--random-state",
    "lda {folder}/docword --n-components 5 --param checkpoint=x": "--out keeps",
    "lda {folder}/docword --n-components 5 --param topics=3": "no parameter 'topics'",
    "lda {folder}/docword --n-components 5 --param max_iter=0": "max_iter",
    "lda {folder}/docword --n-components 1 2 --param doc_topic_prior=[1,2]": "one number of topics",
    "lda {folder}/docword --n-components 5 --out {folder}/docword": "is a file; give a folder",
    "lda {folder}/docword --n-components 5 --out {folder}/a/b": "a does not exist; make it first",
    "lda {folder}/docword --n-components 5 --out {folder}/strange": "line 2 is not a record",
    "lda {folder}/docword --n-components 5 --out {folder}/album": "was not written by this command",
}


@pytest.fixture(scope="module")
def mistaken(corpus):
    """Places for the names in MISTAKES."""
    folder, X, other = corpus
    datasets.save_uci_bow(other[:1], folder / "one")
    datasets.save_uci_bow(sparse.csr_matrix(np.eye(40, dtype=int)), folder / "short")
    datasets.save_uci_bow(other[:, :39], folder / "narrow")
    sparse.save_npz(folder / "fractional.npz", X * 0.5)
    sparse.save_npz(folder / "one-word.npz", sparse.csr_matrix(X.sum(axis=1)))
    (folder / "strange").mkdir()
    record = dict.fromkeys(("version", "parameters", "train", "test"), "") | dict.fromkeys(FIGURES, 1.0)
    good, bad = record | {"n_components": 1, "seed": 0}, record | {"n_components": "1", "seed": 0}
    (folder / "strange" / "records.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    (folder / "album").mkdir()
    (folder / "album" / "sweep.png").write_bytes(b"a picture of something else")
    return folder


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_no_fit(command, mistaken, capsys, fits):
    assert main(["sweep", *command.format(folder=mistaken).split(), "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), fits) == ("", 1, [])
    assert MISTAKES[command] in err


@pytest.mark.parametrize("line", ["{", "[]", "3", "null", '{"n_components": 1}', "\xff"])
def test_what_is_no_record_is_refused(corpus, tmp_path, capsys, fits, line):
    folder, *_ = corpus
    (tmp_path / "records.jsonl").write_bytes(line.encode("latin-1"))
    assert sweep(folder, "--n-components", 2, "--out", tmp_path) == 2
    assert "line 1 is not a record of this command; give another folder" in capsys.readouterr().err
    assert fits == []


# Elsewhere ------------------------------------------------------------------------------------------


def test_grid_search_scores_by_document_completion(corpus):
    _, X, _ = corpus
    lda = sd.LatentDirichletAllocation(max_iter=12, random_state=0)
    search = GridSearchCV(lda, {"n_components": [1, 4, 30]}, cv=KFold(3)).fit(X)
    expected = [
        [
            sd.LatentDirichletAllocation(k, max_iter=12, random_state=0).fit(X[train]).score(X[test])
            for train, test in KFold(3).split(X)
        ]
        for k in (1, 4, 30)
    ]
    scores = np.array([search.cv_results_[f"split{fold}_test_score"] for fold in range(3)]).T
    np.testing.assert_array_equal(scores, expected)
    assert search.best_params_["n_components"] == (1, 4, 30)[np.mean(expected, axis=1).argmax()]
    assert search.best_estimator_.doc_topic_counts_.shape[0] == X.shape[0]
    assert search.score(X) == search.best_estimator_.score(X)


@pytest.mark.parametrize("rank_by", ["relevance", "frex"])
def test_topics_by_other_rankings(corpus, tmp_path, capsys, rank_by):
    folder, X, _ = corpus
    path = tmp_path / "model.npz"
    lda = sd.LatentDirichletAllocation(4, max_iter=12, random_state=0).fit(X)
    lda.save(path)
    words = [f"word{i}" for i in range(40)]
    command = ["topics", str(path), "--vocab", str(folder / "vocab"), "--rank-by", rank_by]
    expected = lda.topics(words, rank_by=rank_by)
    assert list(expected) != list(lda.topics(words))
    assert main(command) == 0
    assert capsys.readouterr().out == f"{expected}\n"
    assert main([*command, "--json"]) == 0
    topics = json.loads(capsys.readouterr().out)["topics"]
    assert [topic["words"] for topic in topics] == list(expected)
    np.testing.assert_array_equal([topic[rank_by] for topic in topics], expected.weights)
    assert main([*command[:-1], "lift"]) == 2
    assert "invalid choice: 'lift'" in capsys.readouterr().err


def test_models_with_covariates_responses_and_keywords_are_swept(tmp_path, capsys):
    rng = np.random.default_rng(0)
    words = np.array([2 * chr(ord("b") + i) for i in range(20)])
    lines = ["text,kind,stars"]
    for row in range(60):
        chosen = rng.choice(words[:10] if row % 2 else words[10:], 12)
        lines.append(f"{' '.join(chosen)},{'ab'[row % 2]},{row % 2 + rng.normal():.3f}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "seeds").write_text("bb cc\nmm nn\n")
    data, options = (
        f"{tmp_path}/t.csv:text",
        ["--repeats", "1", "--json", *PARAMS, "--n-components", "2", "3"],
    )
    for name, own in {
        "dmr": ["--covariates", "kind"],
        "slda": ["--target", "stars"],
        "keyatm": ["--seed-words", f"{tmp_path}/seeds"],
        "biterm": [],
    }.items():
        out = ["--out", f"{tmp_path}/{name}"]
        assert main(["sweep", name, data, *own, *out, *options]) == 0
        rows = found(capsys)["sweep"]
        assert [row["n_components"] for row in rows] == [2, 3]
        assert all(row["perplexity"] < 20 and row["cao_juan"] is not None for row in rows)
        assert main(["sweep", name, data, *own, *out, *options]) == 0  # from the records
        assert found(capsys)["sweep"] == rows
    for wrong, said in (
        (["slda", data], "needs --target"),
        (["keyatm", data], "needs --seed-words"),
        (["biterm", data, "--seed-words", f"{tmp_path}/seeds"], "takes none"),
        (["lda", data, "--covariates", "kind"], "has none; fit dmr"),
        (["dmr", data, "--covariates", "kind", "--test", data], "take --held-out"),
        (["dynamic", data], "judged by later slices"),
    ):
        assert main(["sweep", *wrong, "--n-components", "2", *PARAMS]) == 2
        assert said in capsys.readouterr().err
