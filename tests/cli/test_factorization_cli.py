"""Matrix factorization on the command line: fit, predict, recommend, ids, titles, and mistakes."""

import json
import logging

import distributed
import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.cli.arguments import main
from stradask.datasets import make_ratings

OPTIONS = ["--quiet", "--n-jobs", "1", "--param", "n_components=3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ratings by users and of items with text for ids, their titles, and the same as a matrix."""
    path = tmp_path_factory.mktemp("ratings")
    R = make_ratings(40, 25, 2, density=0.3, noise=0.2, random_state=0)[0].tocoo()
    lines = [f"u{u:02},i{j:02},{r!r}" for u, j, r in zip(R.row, R.col, R.data.tolist(), strict=True)]
    (path / "ratings.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")
    (path / "plain.csv").write_text(
        "\n".join(f"{u},{j},{r!r}" for u, j, r in zip(R.row, R.col, R.data.tolist(), strict=True))
    )
    (path / "titles.csv").write_text('id,title\ni00,"One, the first"\ni01,Two\n')
    (path / "movies.dat").write_bytes("0::Amélie (2001)::Comedy\n1::Two::Drama\n".encode("latin-1"))
    sparse.save_npz(path / "ratings.npz", R.tocsr())
    return path


def fit(folder, *options, data="ratings.csv"):
    return main(["fit", "mf", f"{folder}/{data}", *OPTIONS, *map(str, options)])


@pytest.fixture(scope="module")
def saved(folder):
    path = folder / "model.npz"
    assert fit(folder, "--save", path, "--titles", folder / "titles.csv") == 0
    return path


def test_fit_tells_what_came_out(folder, capsys):
    assert fit(folder, "--json", "--test-size", "0.2") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["data"] == {
        "source": f"{folder}/ratings.csv",
        "users": 40,
        "items": 25,
        "ratings": 200 + 100,
    } | {"ratings": document["data"]["ratings"]}
    assert document["solver"] == "als"
    assert 0 < document["training"]["rmse"] < document["test"]["rmse"] < 1
    assert fit(folder) == 0
    assert "ratings of 25 items by 40 users" in capsys.readouterr().out


@pytest.mark.filterwarnings("default")
def test_a_note_says_what_was_held_out_and_which_columns_were_read(folder, tmp_path, capsys):
    (tmp_path / "few.csv").write_text("".join(f"u{k},{k % 3},{k % 5}\n" for k in range(30)) + "u0,1,4\n")
    assert fit(tmp_path, "--test-size", "0.1", data="few.csv") == 0
    assert "--test-size 0.1 holds out 3.2% of the ratings" in capsys.readouterr().err
    (tmp_path / "table.csv").write_text("age,size,price,rooms\n31,2,7,1\n32,3,8,1\n")
    assert fit(tmp_path, data="table.csv") == 0
    assert "of 4 columns the first three are taken as user, item and rating" in capsys.readouterr().err
    (tmp_path / "movies.csv").write_text("userId,movieId,rating,timestamp\n1,2,5,9\n2,2,3,9\n")
    assert fit(tmp_path, data="movies.csv") == 0
    assert "columns" not in capsys.readouterr().err


def test_ids_that_are_numbers_in_a_part_of_the_file_are_those_of_the_model(tmp_path, capsys):
    lines = ["1,7,5", "1,8,3", "2,7,4", "2,8,2", "3x,7,1", "3x,9y,3"]
    (tmp_path / "ratings.csv").write_text("\n".join(lines))
    (tmp_path / "part.csv").write_text("\n".join(lines[:4]))
    assert fit(tmp_path, "--save", tmp_path / "model.npz") == 0
    model = sd.load(tmp_path / "model.npz")
    capsys.readouterr()
    assert main(["score", str(tmp_path / "model.npz"), str(tmp_path / "part.csv"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    pairs, values = [["1", "7"], ["1", "8"], ["2", "7"], ["2", "8"]], np.array([5, 3, 4, 2])
    expected = np.sqrt(np.mean((model.predict(pairs, clip=False) - values) ** 2))
    assert scores["rmse"] == pytest.approx(expected)


def test_a_saved_model_recommends_by_the_ids_and_titles_of_the_files(saved, capsys):
    model = sd.load(saved)
    assert model.user_ids_[3] == "u03"
    assert main(["recommend", str(saved), "--user", "u03", "u07", "--n", "30", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["recommendations"]
    found = model.recommend(["u03", "u07"], 30)
    for entry, user, items, scores in zip(document, ("u03", "u07"), *found, strict=True):
        assert entry["user"] == user
        there = np.isfinite(scores)
        assert [line["item"] for line in entry["items"]] == items[there].tolist()
        np.testing.assert_allclose([line["score"] for line in entry["items"]], scores[there], rtol=1e-6)
        titles = {"i00": "One, the first", "i01": "Two"}
        assert all(line["title"] == titles.get(line["item"], line["item"]) for line in entry["items"])
    assert main(["recommend", str(saved), "--user", "u03", "--n", "25", "--include-seen"]) == 0
    out = capsys.readouterr().out
    assert "for user u03:" in out
    assert "i00  One, the first" in out
    assert len(out.splitlines()) == 26
    assert (
        main(
            [
                "recommend",
                str(saved),
                "--user",
                "u03",
                "--n",
                "30",
                "--include-seen",
                "--exclude",
                "i00",
                "i04",
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "i00" not in out
    assert "i04" not in out
    assert "i05" in out


def test_items_like_others_and_a_map_of_all(saved, capsys, tmp_path):
    model = sd.load(saved)
    assert main(["recommend", str(saved), "--like", "i00", "i04", "--n", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["similar"]
    assert [entry["item"] for entry in document] == ["i00", "i04"]
    assert [line["item"] for line in document[1]["items"]] == model.similar_items("i04", 3).items.tolist()
    assert main(["recommend", str(saved), "--like", "i04", "--n", "24"]) == 0
    assert "i00  One, the first" in capsys.readouterr().out
    for suffix, begin in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        path = tmp_path / f"map.{suffix}"
        assert main(["recommend", str(saved), "--map", str(path)]) == 0
        assert path.read_bytes().startswith(begin)
    map_ = (tmp_path / "map.svg").read_text()  # which has words in comments; titles that overlap are left out
    assert "One, the first" in map_ or "Two" in map_
    # New items keep the titles of the others in place.
    model.partial_fit([["u03", "i00x"]], [3.0])
    assert model.item_titles_[:3].tolist() == ["One, the first", "i00x", "Two"]


def test_predictions_go_to_a_table(folder, saved, capsys, tmp_path):
    assert main(["predict", str(saved), f"{folder}/ratings.csv", "--out", f"{tmp_path}/p.npz"]) == 0
    assert "RMSE" in capsys.readouterr().err
    with np.load(tmp_path / "p.npz") as file:
        pairs = np.column_stack([file["users"], file["item"]])
        np.testing.assert_allclose(file["prediction"], sd.load(saved).predict(pairs))
    (tmp_path / "new.csv").write_text("u03,i01,3\nzoe,i01,4\n")
    assert main(["predict", str(saved), f"{tmp_path}/new.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "user,prediction,item"
    assert [line.split(",")[::2] for line in lines[1:]] == [["u03", "i01"], ["zoe", "i01"]]


def test_whole_numbers_matrices_counts_and_titles_of_movielens(folder, capsys, tmp_path):
    path = tmp_path / "m.npz"
    for data in ("plain.csv", "ratings.npz"):
        assert fit(folder, "--save", path, "--titles", folder / "movies.dat", data=data) == 0
        assert sd.load(path).item_titles_[0] == "Amélie (2001)"
        capsys.readouterr()
        assert main(["recommend", str(path), "--user", "3", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["recommendations"][0]["user"] == 3
        path.unlink()
    assert fit(folder, "--param", "implicit=True", "--test-size", "0.2", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert 0 < document["test"]["ndcg"] < 1
    assert "training" not in document


def test_features_recommend_to_users_and_items_without_ratings(folder, tmp_path, capsys):
    rng = np.random.default_rng(0)
    users, items = rng.standard_normal((42, 2)).round(3), rng.integers(0, 2, (27, 3))
    names = [f"u{u:02}" for u in range(42)], [f"i{j:02}" for j in range(27)]  # two more of each than rated
    for name, ids, table, order in (
        ("users.csv", names[0], users, rng.permutation(42)),
        ("items.tsv", names[1], items, rng.permutation(27)),
    ):
        separator = "\t" if name.endswith("tsv") else ","
        lines = [separator.join([ids[row], *map(str, table[row].tolist())]) for row in order]
        head = separator.join(["id", *"abc"[: table.shape[1]]])
        (tmp_path / name).write_text("\n".join([head, *lines]) + "\n")
    options = ["--user-features", tmp_path / "users.csv", "--item-features", tmp_path / "items.tsv"]
    model, path = ["--param", "dtype=float64"], tmp_path / "model.npz"
    assert fit(folder, *options, "--save", path, "--test-size", "0.2", "--json", *model) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["data"]["users"], document["data"]["items"]) == (42, 27)
    assert 0 < document["test"]["rmse"] < 2
    found = sd.load(path)
    assert found.user_ids_.tolist() == names[0]
    prior = np.column_stack([users, np.ones(42)]) @ found.user_feature_weights_
    np.testing.assert_allclose(found.user_factors_[40:], prior[40:, :-1], rtol=1e-9)
    capsys.readouterr()
    assert main(["recommend", str(path), "--user", "u41", "--n", "27", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["recommendations"][0]["items"]
    best = found.recommend("u41", 27)
    assert [entry["item"] for entry in shown] == best.items.tolist()
    assert {"i25", "i26"} < {entry["item"] for entry in shown}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("few.csv", "id,a\nu00,1\n", "has no line of the user 'u01', which has ratings"),
        ("twice.csv", "u00,1\nu00,2\n", "has two lines of the user 'u00'"),
        ("text.csv", "id,sex\nu00,f\n", "line 2, column 1 ('sex'): 'f' is not a number"),
        ("users.dat", "u00::1\n", "the name must end in .csv or .tsv"),
    ],
)
def test_wrong_features_are_one_line(folder, tmp_path, capsys, name, text, message):
    (tmp_path / name).write_text(text)
    assert fit(folder, "--user-features", tmp_path / name) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [str(2**63), "1.0", "1_0", "ann"])
def test_ids_that_are_no_whole_numbers_of_64_bits_are_one_line(tmp_path, capsys, wrong):
    ratings, features = tmp_path / "r.csv", tmp_path / "u.csv"
    ratings.write_text("1,10,4\n2,10,3\n2,20,5\n10,20,1\n")
    features.write_text(f"1,5\n2,6\n10,3\n{wrong},3\n")
    arguments = ["fit", "mf", str(ratings), *OPTIONS, "--user-features", str(features)]
    assert main(arguments) == 2
    message = f"--user-features: the ids of the ratings are whole numbers of 64 bits, not {wrong!r}"
    assert message in capsys.readouterr().err


def test_workers_do_the_fit(folder, capsys, tmp_path):
    options = {
        "n_workers": 2,
        "processes": False,
        "dashboard_address": ":0",
        "silence_logs": logging.CRITICAL,
    }
    solver = ["--param", "solver=sgd"]
    with distributed.LocalCluster(threads_per_worker=1, **options) as cluster:
        address = cluster.scheduler_address
        assert fit(folder, *solver, "--cluster", address, "--save", tmp_path / "far.npz") == 0
    assert fit(folder, *solver, "--save", tmp_path / "near.npz") == 0
    far, near = (sd.load(tmp_path / f"{name}.npz") for name in ("far", "near"))
    np.testing.assert_array_equal(far.item_factors_, near.item_factors_)
    assert far.history_["bytes_sent"].sum() > 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["recommend", "{saved}", "--user", "zoe"], "the user 'zoe' was not in fit"),
        (["recommend", "{saved}", "--like", "i99"], "the item 'i99' was not in fit"),
        (["recommend", "{saved}", "--map", "{folder}/map.jpg"], "must end in .png or .svg"),
        (["recommend", "{saved}", "--user", "u01", "--n", "0"], "is not a whole number of 1 or more"),
        (
            ["fit", "mf", "{folder}/ratings.csv", "--titles", "{folder}/plain.csv"],
            "no item of the ratings is in",
        ),
        (["fit", "mf", "{folder}/ratings.csv", "--titles", "{folder}/none.csv"], "No such file"),
        (["fit", "mf", "{folder}/ratings.csv", "--vocab", "{folder}/titles.csv"], "ratings have no words"),
        (["fit", "mf", "{folder}/ratings.csv", "--target", "rating"], "have no target column"),
        (["fit", "mf", "docstrings"], "docstrings are no ratings"),
        (["fit", "mf", "{folder}/titles.csv"], "not UCI bag of words, svmlight, ratings"),
        (
            ["fit", "lasso", "{folder}/ratings.csv", "--target", "rating", "--titles", "x"],
            "has no users and items",
        ),
        (["fit", "lda", "docstrings", "--cluster", "nowhere"], "engine='nowhere' is unknown"),
    ],
)
def test_mistakes_are_one_line(command, message, folder, saved, capsys):
    command = [part.format(saved=saved, folder=folder) for part in command]
    assert main(command) == 2
    assert message in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*relevant cells were in fit")  # of `predict`
@pytest.mark.parametrize("name", ["ease", "slim", "item-knn", "popularity"])
def test_item_models_on_the_command_line(folder, name, capsys, tmp_path):
    path = tmp_path / "model.npz"
    options = ["--quiet", "--test-size", "0.2", "--json", "--save", str(path)]
    assert main(["fit", name, f"{folder}/ratings.csv", "--titles", f"{folder}/titles.csv", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert 0 < document["test"]["ndcg"] < 1
    assert document["items"] == 25
    model = sd.load(path)
    assert main(["recommend", str(path), "--user", "u03", "--n", "4", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["recommendations"][0]["items"]
    assert [entry["item"] for entry in shown] == model.recommend("u03", 4).items.tolist()
    assert main(["predict", str(path), f"{folder}/ratings.csv", "--out", str(tmp_path / "p.csv")]) == 0
    _header, first = (tmp_path / "p.csv").read_text().splitlines()[:2]
    user, prediction, item = first.split(",")
    assert float(prediction) == pytest.approx(model.predict([[user, item]])[0], rel=1e-5)
    capsys.readouterr()
    assert main(["recommend", str(path), "--map", str(tmp_path / "map.png")]) == 2
    assert "has none" in capsys.readouterr().err
    if name == "popularity":
        assert main(["recommend", str(path), "--like", "i04"]) == 2
        assert "compares no items" in capsys.readouterr().err
    features = ["--item-features", f"{folder}/titles.csv"]
    assert main(["fit", name, f"{folder}/ratings.csv", *features]) == 2
    assert f"{name} takes no features" in capsys.readouterr().err
