"""Responses of documents on the command line."""

import json

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.cli.arguments import main


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = ["text,stars,kind"]
    for i in range(60):
        own = ["good", "great", "fine"] if i % 2 else ["poor", "dull", "slow"]
        rows.append(" ".join(rng.choice(own, 12)) + f",{1 + 3 * (i % 2)},{'ab'[i % 2]}")
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_responses_are_fitted_predicted_and_scored(table, tmp_path, capsys):
    saved, data = str(tmp_path / "model.npz"), f"{table}:text"
    fit = ["fit", "slda", data, "--n-components", "2", "--max-iter", "60", "--test-size", "0.2", "--quiet"]
    assert main([*fit, "--target", "stars", "--save", saved, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["r2"] > 0.9
    assert len(found["coefficients"]["coefficient"]) == 2
    assert main(["score", saved, data, "--target", "stars", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["r2"] > 0.9
    out = tmp_path / "p.csv"
    assert main(["predict", saved, data, "--out", str(out), "--quiet"]) == 0
    predicted = np.loadtxt(out, delimiter=",", skiprows=1, usecols=1)
    np.testing.assert_allclose(predicted[::2], 1, atol=0.5)
    assert main([*fit, "--target", "kind", "--response", "class", "--save", saved]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert sd.load(saved).classes_.tolist() == ["a", "b"]
    assert main(["predict", saved, data, "--quiet"]) == 0
    assert "probability_of_b" in capsys.readouterr().out


def test_missing_and_wrong_responses_are_refused(table, capsys):
    assert main(["fit", "slda", f"{table}:text", "--quiet"]) == 2
    assert "needs --target COLUMN" in capsys.readouterr().err
    assert main(["fit", "slda", f"{table}:text", "--target", "kind", "--quiet"]) == 2
    assert "--response class" in capsys.readouterr().err
    assert main(["fit", "keyatm", f"{table}:text", "--quiet"]) == 2
    assert "needs --seed-words FILE" in capsys.readouterr().err


def test_seed_words_of_a_file_are_checked_by_their_lines(table, tmp_path, capsys):
    seeds = tmp_path / "seeds.txt"
    fit = ["fit", "keyatm", f"{table}:text", "--n-components", "2", "--max-iter", "2", "--quiet"]
    fit += ["--seed-words", str(seeds)]
    wrong = {
        "poor\nnosuch": "'nosuch' of line 2 of",
        "poor\ngood\nslow": "line 3 of",
        "\n": "holds no word",
        "caf\xe9": "iconv",
    }
    for text, message in wrong.items():
        seeds.write_text(text, encoding="latin-1")
        assert main(fit) == 2
        assert message in capsys.readouterr().err
    seeds.write_text("poor slow\ngood\n", encoding="utf-8-sig")
    assert main(fit) == 0


def test_tokens_and_coherence_of_texts_and_seed_words(table, tmp_path, capsys):
    saved, data, seeds = str(tmp_path / "key.npz"), f"{table}:text", tmp_path / "seeds.txt"
    seeds.write_text("poor slow\ngood\n")
    fit = ["fit", "keyatm", data, "--n-components", "2", "--max-iter", "30", "--seed-words", str(seeds)]
    assert main([*fit, "--save", saved, "--quiet", "--json"]) == 0
    topics = json.loads(capsys.readouterr().out)["topics"]
    assert set(topics[0]["words"][:3]) == {"poor", "dull", "slow"}
    assert main(["tokens", saved, data, "--quiet"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["document", "word", "topic", "probability"]
    assert len(rows) == 1 + 60 * 12
    assert {row[2] for row in rows[1:] if row[1] == "dull"} == {"0"}
    assert (
        main(["coherence", saved, data, "--measure", "c_v", "--window", "5", "--n-words", "3", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    texts = [line.split(",")[0] for line in table.read_text().splitlines()[1:]]
    expected = sd.load(saved).coherence(measure="c_v", n_words=3, texts=texts, window=5)
    np.testing.assert_allclose([topic["coherence"] for topic in found["topics"]], expected)
    assert main(["coherence", saved, data, "--measure", "umass", "--n-words", "3", "--quiet"]) == 0
    assert "umass" in capsys.readouterr().out
    sparse.save_npz(tmp_path / "counts.npz", sparse.csr_matrix(np.ones((2, 6), int)))
    assert main(["tokens", saved, str(tmp_path / "counts.npz"), "--quiet"]) == 0
    assert {line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]} == {"1", "2"}
    assert main(["fit", "gsdmm", data, "--seed-words", str(seeds), "--quiet"]) == 2
    assert "takes none" in capsys.readouterr().err
