"""Covariates of documents on the command line."""

import json

import numpy as np
import pytest

import stradask as sd
from stradask.cli.arguments import main


@pytest.mark.filterwarnings("ignore:intervals rest on:UserWarning")
def test_covariates_are_columns_of_the_table_of_texts(tmp_path, capsys):
    words = [["soup", "bread", "salt", "oven"], ["train", "ticket", "delay", "seat"]]
    rows = [f"{' '.join(words[i % 2] * 2)},{2000 + i % 7},{'ab'[i % 2]}" for i in range(60)]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["text,year,source", *rows]), encoding="utf-8")
    given = ["fit", "dmr", f"{table}:text", "--covariates", "year", "source", "--json", "--quiet"]
    given += [
        "--param",
        "n_components=2",
        "max_iter=400",
        "--test-size",
        "0.2",
        "--save",
        f"{tmp_path}/m.npz",
    ]
    assert main(given) == 0
    found = json.loads(capsys.readouterr().out)
    model = sd.load(tmp_path / "m.npz")
    assert model.coef_names_ == ["intercept", "year", "source=b"]
    np.testing.assert_array_equal(found["effects"]["mean"], model.effects().mean)
    assert model.design_.shape == (48, 3)
    assert found["held_out_perplexity"] < 8
    few = ["fit", "dmr", f"{table}:text", "--covariates", "year", "--quiet", "--param", "max_iter=20"]
    assert main(few) == 0
    assert "no effects of covariates: level=0.9 needs 19 draws" in capsys.readouterr().out
    assert main(["fit", "lda", f"{table}:text", "--covariates", "year"]) == 2
    assert "fit dmr" in capsys.readouterr().err
    assert main(["fit", "dmr", "docstrings", "--covariates", "year"]) == 2
    assert "FILE.csv:COLUMN" in capsys.readouterr().err
    table.write_text(
        "\n".join(["text,source", *["soup bread oven,c"] * 3, "soup salt oven,d"]), encoding="utf-8"
    )
    alone = ["fit", "dmr", f"{table}:text", "--covariates", "source", "--test-size", "0.25"]
    assert main([*alone, "--random-state", "1"]) == 2
    assert "'d' of the column 'source' is in held-out documents only" in capsys.readouterr().err
    table.write_text("\n".join(["text,year,source", "soup bread,,a", *rows]), encoding="utf-8")
    assert main(["fit", "dmr", f"{table}:text", "--covariates", "year"]) == 2
    assert "row 1 of the column 'year' is empty" in capsys.readouterr().err
