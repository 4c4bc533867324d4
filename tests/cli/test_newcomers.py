"""What people try first with files of their own: every column is named at once, and formats agree."""

import csv
import json

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.cli.arguments import main
from stradask.datasets import read_texts
from stradask.errors import DataError

WORDS = ["--drop", "id", "since", "--impute"]


def customers(n=60):
    rng = np.random.default_rng(0)
    for i in range(n):
        age = float(rng.integers(18, 80)) if i % 7 else None
        plan, post = str(rng.choice(["a", "b"])), str(rng.choice(["01234", "90210"]))
        yield {
            "id": f"C{i:03d}",
            "age": age,
            "plan": plan,
            "post": post,
            "since": f"2024-01-{i % 28 + 1:02d}",
            "left": "yes" if plan == "a" else "no",
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("newcomer")
    rows = list(customers())
    with (folder / "c.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (folder / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def run(capsys, *words):
    status = main([str(word) for word in words])
    return status, *capsys.readouterr()


def test_all_columns_that_cannot_be_used_are_named_at_once_with_the_options(folder, capsys):
    status, _, err = run(capsys, "fit", "logistic", f"{folder}/c.csv:left", "--quiet")
    assert status == 2
    assert "3 columns cannot be used" in err
    assert "'age' (9 without a value)" in err
    assert "--impute --drop id since" in err
    options = err.split("for instance ")[1].split()
    options += ["--categories", "post"]
    assert run(capsys, "fit", "logistic", f"{folder}/c.csv:left", "--quiet", *options)[0] == 0


def test_a_table_in_json_lines_or_parquet_is_that_of_csv(folder, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").Table.from_pylist(list(customers()))
    parquet.write_table(table, folder / "c.parquet")
    models = []
    for name in ("c.csv", "c.jsonl", "c.parquet"):
        words = ("fit", "logistic", f"{folder}/{name}:left", "--quiet", "--categories", "post")
        assert run(capsys, *words, *WORDS, "--save", folder / "m.npz")[0] == 0
        models.append(sd.load(folder / "m.npz"))
        (folder / "m.npz").unlink()
    for model in models:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        assert list(model.vocabulary_) == ["age", "plan=a", "plan=b", "post=01234", "post=90210"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1', "line 2: not JSON"),
        ("[1, 2]", "is no object"),
        ('{"a": [1], "left": 2}', "'a' holds a list"),
        ("9" * 5000, "line 2"),
    ],
)
def test_lines_of_json_that_make_no_table_are_named(tmp_path, capsys, line, message):
    (tmp_path / "t.jsonl").write_text('{"a": 1, "left": 2}\n' + line + "\n")
    status, _, err = run(capsys, "fit", "ridge", f"{tmp_path}/t.jsonl:left", "--quiet")
    assert status == 2
    assert message in err
    assert len(err) < 500


@pytest.mark.filterwarnings("always::UserWarning")
def test_codes_among_the_numbers_and_scales_that_differ_get_a_note(folder, tmp_path, capsys):
    words = ("fit", "logistic", f"{folder}/c.csv:left", *WORDS)
    assert run(capsys, *words)[0] == 0
    assert "'post' is read as numbers, but '01234' looks like a code" in run(capsys, *words)[2]
    assert "looks like a code" not in run(capsys, *words, "--categories", "post")[2]
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(50, 2)) * [1, 1000], rng.normal(size=50)])
    np.savetxt(tmp_path / "t.csv", X, delimiter=",", header="small,wide,y", comments="")
    err = run(capsys, "fit", "lasso", f"{tmp_path}/t.csv:y")[2]
    assert "wide ones such as 'wide'; --standardize" in err
    assert "scales" not in run(capsys, "fit", "lasso", f"{tmp_path}/t.csv:y", "--standardize")[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit logistic {}/c.csv:lft", "did you mean 'left'?"),
        ("fit lda {}/c.csv:plann", "did you mean 'plan'?"),
        ("fit logistic {}/c.csv:left --drop idd", "did you mean 'id'?"),
        ("fit lda {}/r.csv", "look like ratings"),
        ("fit mf {}/c.jsonl", "ratings have a column user"),
        ("fit cox {}/c.csv:age", "c.csv:TIME,EVENT"),
        ("topics {}/c.csv", "fit --save, wrote"),
    ],
)
def test_a_wrong_name_or_kind_of_file_names_the_right_one(folder, capsys, words, message):
    (folder / "r.csv").write_text("user_id,movie_id,rating,time\nu,m,3,1\n")
    status, _, err = run(capsys, *words.format(folder).split())
    assert status == 2
    assert message in err


def test_ratings_in_json_lines_and_parquet_are_those_of_csv(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = [
        {"movieId": f"m{i}", "rating": float(rng.integers(1, 6)), "userId": f"u{u}"}
        for u in range(12)
        for i in rng.permutation(9)[:5]
    ]
    names = ["userId", "movieId", "rating"]
    (tmp_path / "r.csv").write_text(
        "\n".join([",".join(names), *(",".join(str(line[name]) for name in names) for line in lines)]) + "\n"
    )
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = ["r.csv", "r.jsonl"]
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(
        pyarrow.Table.from_pylist(lines), tmp_path / "r.parquet"
    )
    factors = []
    for name in [*files, "r.parquet"]:
        words = ("fit", "mf", tmp_path / name, "--n-components", "2", "--save", tmp_path / "m.npz", "--quiet")
        assert run(capsys, *words)[0] == 0
        factors.append(sd.load(tmp_path / "m.npz").item_factors_)
        (tmp_path / "m.npz").unlink()
    np.testing.assert_array_equal(factors[1], factors[0])
    np.testing.assert_array_equal(factors[2], factors[0])


def test_binary_files_of_a_folder_are_left_out_with_a_warning(tmp_path):
    (tmp_path / "a.txt").write_text("a room")
    (tmp_path / "b.txt").write_bytes(b"\x89PNG\0\0\0")
    with pytest.warns(UserWarning, match=r"1 of 2 files, such as .*b\.txt, hold no text and are left out"):
        found = read_texts(tmp_path)
    assert found.texts == ["a room"]
    assert found.names.tolist() == ["a.txt"]
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"its 1 \.txt files hold no text"):
        read_texts(tmp_path)


def test_score_judges_each_kind_of_model_by_new_data(folder, tmp_path, capsys):
    table, model = f"{folder}/c.csv:left", tmp_path / "m.npz"
    assert run(capsys, "fit", "logistic", table, *WORDS, "--categories", "post", "--save", model)[0] == 0
    status, out, _ = run(capsys, "score", model, table, "--json")
    assert status == 0
    assert json.loads(out)["scores"]["accuracy"] == 1  # the plan decides
    status, _, err = run(capsys, "score", model, f"{folder}/c.csv")
    assert (status, "say which column is the target" in err) == (2, True)
    (tmp_path / "t.csv").write_text("text\n" + "clean room,\nquiet room,\nrude staff,\n".replace(",", "") * 5)
    words = ("fit", "lda", f"{tmp_path}/t.csv:text", "--n-components", "2", "--max-iter", "20")
    assert run(capsys, *words, "--save", tmp_path / "t.npz")[0] == 0
    assert run(capsys, "score", tmp_path / "t.npz", f"{tmp_path}/t.csv:text")[1].startswith("perplexity ")


def test_explain_adds_up_what_the_ratings_of_a_user_say(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = [f"u{u},i{i},{rng.integers(1, 6)}" for u in range(12) for i in rng.permutation(9)[:5]]
    (tmp_path / "r.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "titles.csv").write_text("".join(f"i{i},Title {i}\n" for i in range(9)))
    asked = ("--user", "u3", "--item", "i1", "--json")
    for name in ("mf", "ease"):
        model = tmp_path / f"{name}.npz"
        words = ("fit", name, tmp_path / "r.csv", "--save", model)
        assert run(capsys, *words, *(["--titles", tmp_path / "titles.csv"] if name == "mf" else []))[0] == 0
        status, out, _ = run(capsys, "explain", model, tmp_path / "r.csv", *asked)
        assert status == 0
        loaded = sd.load(model)
        row = np.zeros((1, 9))
        for line in lines:
            user, item, value = line.split(",")
            if user == "u3":
                row[0, list(loaded.item_ids_).index(item)] = float(value)
        expected = loaded.explain(sparse.csr_array(row), ["i1"], 5)
        found = json.loads(out)["because_of"]
        assert [entry["item"] for entry in found] == expected.items[0, : len(found)].tolist()
        np.testing.assert_allclose([entry["adds"] for entry in found], expected.scores[0, : len(found)])
        if name == "mf":
            assert found[0]["title"] == f"Title {found[0]['item'][1:]}"
        status, _, err = run(capsys, "explain", model, *asked)
        assert (status, "give the ratings" in err) == ((2, True) if name == "mf" else (0, False))
    for wrong, message in (("--user u99 --item i1", "u99"), ("--user u3 --item i99", "'i99' is no item")):
        status, _, err = run(capsys, "explain", tmp_path / "mf.npz", tmp_path / "r.csv", *wrong.split())
        assert (status, message in err) == (2, True)


def test_completion_knows_the_commands_and_their_options(capsys):
    pytest.importorskip("shtab")
    status, out, _ = run(capsys, "completion", "bash")
    assert status == 0
    for word in ("recommend", "--impute", "explain"):
        assert word in out
