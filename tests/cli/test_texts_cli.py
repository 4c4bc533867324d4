"""Texts on the command line: fit, topics, transform, sweep and data info."""

import csv
import json

import numpy as np
import pytest

import stradask as sd
from stradask.cli.arguments import main

HOTEL = ["room", "bed", "bathroom", "shower", "towel", "quiet", "pillow", "lobby"]
OTHERS = ["he", "said", "and", "left"]
FOOD = ["breakfast", "dinner", "waiter", "menu", "soup", "coffee", "tasty", "bread"]
FIT = ["--param", "n_components=2", "max_iter=40", "doc_topic_prior=0.1"]


def texts(n, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice((HOTEL, FOOD)[i % 2], 20)) for i in range(n)]


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["stars", "text"], *([i % 5, row] for i, row in enumerate(rows))])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reviews.csv", [*texts(60), 'He said "bed",\nand left'])
    write(tmp_path / "new.csv", ["pillow towel unheard", "soup bread menu"])
    return tmp_path


def run(capsys, *words):
    status = main([str(word) for word in words])
    return status, *capsys.readouterr()


def test_topics_of_a_column_and_shares_of_new_rows(folder, capsys):
    assert run(capsys, "fit", "lda", "reviews.csv:text", *FIT, "--save", "m.npz")[0] == 0
    model = sd.load("m.npz")
    assert set(model.vocabulary_) == {*HOTEL, *FOOD, *OTHERS}
    status, out, _ = run(capsys, "topics", "m.npz", "--n-words", 8, "--json")
    tops = {frozenset(topic["words"]) for topic in json.loads(out)["topics"]}
    assert (status, tops) == (0, {frozenset(HOTEL), frozenset(FOOD)})
    status, out, _ = run(capsys, "transform", "m.npz", "new.csv:text", "--out", "shares.csv")
    rows = list(csv.reader((folder / "shares.csv").open()))
    X, _ = sd.text_counts(["pillow towel unheard", "soup bread menu"], vocabulary=model.vocabulary_)
    assert [row[0] for row in rows[1:]] == ["1", "2"]
    np.testing.assert_allclose(np.array(rows[1:], float)[:, 1:], model.transform(X), rtol=1e-4)


def test_folders_lines_and_sweeps(folder, capsys):
    (folder / "docs").mkdir()
    for number, text in enumerate(texts(30)):
        (folder / "docs" / f"{number:02}.txt").write_text(text)
    (folder / "lines.txt").write_text("\n".join(texts(30)))
    status, out, _ = run(capsys, "fit", "lda", "docs", *FIT, "--save", "m.npz", "--json")
    assert (status, json.loads(out)["data"]["documents"]) == (0, 30)
    _, out, _ = run(capsys, "transform", "m.npz", "docs", "--json")
    assert "00.txt" in out
    status, out, _ = run(capsys, "fit", "lda", "lines.txt", *FIT, "--test-size", 0.2, "--json")
    assert (status, json.loads(out)["data"]["words"]) == (0, 16)
    words = ("--n-components", 2, 3, "--repeats", 1, "--param", "max_iter=20", "--test", "new.csv:text")
    status, out, _ = run(capsys, "sweep", "lda", "reviews.csv:text", *words, "--json")
    assert (status, json.loads(out)["best"] in (2, 3)) == (0, True)


def test_what_the_data_hold(folder, capsys):
    status, out, _ = run(capsys, "data", "info", "reviews.csv:text", "--json")
    described = json.loads(out)
    assert (status, described["documents"], described["words"]) == (0, 61, 20)


def test_a_fit_says_which_share_of_the_tokens_is_left_out(folder, capsys):
    write(folder / "a.csv", ["soup 1984 x", "bread 2nd the"] * 2)
    options = ["--param", "n_components=2", "max_iter=2", "--json"]
    _, out, _ = run(capsys, "fit", "lda", "a.csv:text", *options)
    told = json.loads(out)["data"]
    assert told["tokens_left_out"] | {"that are numbers": 2, "of one letter": 2} == told["tokens_left_out"]
    _, out, _ = run(capsys, "fit", "lda", "a.csv:text", *options[:-1])
    assert "4 documents, 6 tokens, 3 words (left out: 50.0 % of the tokens: 1 words that are numbers" in out


def test_lines_of_a_script_without_spaces_are_no_vocabulary(folder, capsys):
    (folder / "lines.txt").write_text("我爱北京天安门\n天安门上太阳升\n", encoding="utf-8")
    status, _, err = run(capsys, "fit", "lda", "lines.txt", *FIT)
    assert status == 2
    assert "clauses of a script without spaces between words" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "lda", "reviews.csv"], "say which column of reviews.csv holds the texts"),
        (["fit", "lda", "reviews.csv:body"], "no column 'body'"),
        (["fit", "lda", "reviews.csv:text", "--vocab", "v.txt"], "--vocab: reviews.csv:text holds texts"),
        (
            ["fit", "lda", "reviews.csv:text", "new.csv:text"],
            "holds texts; give it alone, or a folder of texts",
        ),
        (["fit", "lda", "reviews.csv:text", "--save", "reviews.csv"], "--save"),
        (["fit", "mf", "lines.txt"], "text, which starts with"),
    ],
)
def test_mistakes_are_named(folder, capsys, words, said):
    (folder / "lines.txt").write_text("\n".join(texts(5)))
    (folder / "v.txt").write_text("a\n")
    before = (folder / "reviews.csv").read_bytes()
    status, _, err = run(capsys, *words)
    assert status == 2
    assert said in err.splitlines()[-1]
    assert (folder / "reviews.csv").read_bytes() == before


def test_a_page_of_a_model_without_threads(folder, capsys):
    options = ["--param", "n_components=5", "max_iter=5", "--save", "m.npz", "--quiet"]
    assert run(capsys, "fit", "gsdmm", "reviews.csv:text", *options)[0] == 0
    status, _, err = run(capsys, "explore", "m.npz", "reviews.csv:text", "--out", "page.html")
    assert (status, (folder / "page.html").exists()) == (0, True), err


def test_a_page_of_texts_with_counts_of_the_users(folder, capsys):
    from scipy import sparse

    rows = texts(60)
    words = sorted({word[:3].upper() for row in rows for word in row.split()})
    counts = [[[w[:3].upper() for w in row.split()].count(word) for word in words] for row in rows]
    sparse.save_npz(folder / "x.npz", sparse.csr_matrix(np.array(counts)))
    (folder / "v.txt").write_text("\n".join(words))
    write(folder / "rows.csv", rows)
    run(capsys, "fit", "lda", "x.npz", "--vocab", "v.txt", *FIT, "--save", "m.npz", "--quiet")
    status, _, err = run(capsys, "explore", "m.npz", "rows.csv:text", "--out", "page.html")
    assert (status, (folder / "page.html").exists()) == (2, False)
    assert "explore MODEL COUNTS --texts TEXTS" in err
    more = ("--texts", "rows.csv:text", "--groups", "stars", "--out", "page.html")
    status, _, err = run(capsys, "explore", "m.npz", "x.npz", *more)
    assert (status, rows[0] in (folder / "page.html").read_text()) == (0, True), err
    for given in (["rows.csv:text", *more], more):
        status, _, err = run(capsys, "explore", "m.npz", *given)
        assert status == 2
        assert "--texts" in err


def test_a_switch_before_the_data_is_named(folder, capsys):
    status, _, err = run(capsys, "fit", "lda", "--exact", "reviews.csv:text")
    assert status == 2
    assert "'reviews.csv:text' was taken as the value of --exact" in err
    status, _, err = run(capsys, "fit", "lda", "--n-components", "3")
    assert "arguments are required: DATA" in err


def test_documents_of_unknown_words_are_counted(folder, capsys):
    run(capsys, "fit", "lda", "reviews.csv:text", *FIT, "--save", "m.npz", "--quiet")
    write(folder / "some.csv", ["pillow unheard", "neither known", "soup bread"])
    status, out, err = run(capsys, "transform", "m.npz", "some.csv:text")
    assert (status, len(out.splitlines())) == (0, 4)
    assert "note: left out: 50.0 % of the tokens as unknown to the model: 1 words on the English" in err
    assert "2 words not in the vocabulary (2 tokens)" in err
    assert "note: 1 of 3 documents have no word that the model knows" in err
