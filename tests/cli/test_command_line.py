"""The command line: what it prints, what it writes, and what it says of mistakes."""

import json
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
from command_lines import PARAMS, run_fit, stradask
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from sklearn.model_selection import train_test_split

import stradask as sd
from stradask import datasets
from stradask.benchmarks import command as bench_command
from stradask.cli.arguments import build_parser, main
from stradask.kernels.cuda.device import standing_in
from stradask.registry import MODELS, model_of, resolve

COMMANDS = [
    "demo",
    "fit",
    "sweep",
    "transform",
    "predict",
    "topics",
    "data list",
    "data get",
    "data info",
    "data shard",
    "info",
    "bench",
]


# Help and start -----------------------------------------------------------------------------------
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    examples = out.partition("examples:")[2]
    assert f"stradask {command}" in examples


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "bench"])
def test_examples_in_the_help_parse(command, capsys):
    main([*command.split(), "--help"])
    lines = capsys.readouterr().out.partition("examples:")[2].splitlines()
    lines = [line.partition("|")[0].partition(">")[0].split() for line in lines]
    lines = [words[words.index("stradask") + 1 :] for words in lines if "stradask" in words]
    assert lines
    for words in lines:
        build_parser().parse_args(words)


def test_help_imports_nothing_heavy(tmp_path):
    code = (
        "import sys; from stradask.cli.arguments import main\n"
        "for command in ('', 'fit', 'sweep', 'demo', 'bench', 'data list'):\n"
        "    main([*command.split(), '--help'])\n"
        "heavy = {'numba', 'sklearn', 'scipy', 'matplotlib', 'pooch', 'pandas'} & set(sys.modules)\n"
        "print(heavy, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stderr == "set()\n"


def test_version_from_another_folder(tmp_path):
    done = stradask("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"stradask {sd.__version__}\n", "")


def test_registry_names_things_that_exist():
    for name, entry in MODELS.items():
        assert name == entry.name
        assert model_of(entry.estimator_class()()) is entry
        assert callable(resolve(entry.report))
        assert entry.demo is None or callable(resolve(entry.demo))


# fit ----------------------------------------------------------------------------------------------
def test_fit_prints_what_the_estimator_has(corpus, capsys):
    folder, X = corpus
    assert run_fit(folder, "--json", "--random-state", "5") == 0
    found = json.loads(capsys.readouterr().out)
    lda = sd.LatentDirichletAllocation(3, max_iter=30, random_state=5).fit(X)
    assert found["log_likelihood_per_token"] == lda.log_likelihood_[-1]
    assert found["data"] == {
        "source": str(folder / "docword"),
        "documents": 150,
        "words": 60,
        "nonzeros": X.nnz,
        "tokens": int(X.sum()),
    }
    words = [[f"word{i}" for i in topic] for topic in lda.topics([f"{i:02d}" for i in range(60)])]
    assert [topic["words"] for topic in found["topics"]] == words
    assert found["parameters"]["n_components"] == 3
    assert found["tokens_per_second"] == pytest.approx(30 * X.sum() / found["seconds"])
    assert (found["held_out_perplexity"], found["interrupted"], found["saved"]) == (None, False, None)


def test_fit_prints_text(corpus, capsys):
    folder, _ = corpus
    assert run_fit(folder, "--test-size", "0.2") == 0
    out, err = capsys.readouterr()
    for part in (
        "120 documents",
        "30 sweeps",
        "tokens/s",
        "perplexity",
        "30 held-out documents",
        "topic  share",
    ):
        assert part in out
    assert "LDA: 30/30" in err


def test_held_out_documents_are_judged(corpus, capsys):
    folder, X = corpus
    assert run_fit(folder, "--test-size", "0.2", "--json", "--quiet") == 0
    out, err = capsys.readouterr()
    train, test = (np.sort(rows) for rows in train_test_split(np.arange(150), test_size=0.2, random_state=0))
    lda = sd.LatentDirichletAllocation(3, max_iter=30, random_state=0).fit(X[train])
    assert json.loads(out)["held_out_perplexity"] == lda.perplexity(X[test])
    assert err == ""


@pytest.mark.parametrize("data", ["docword.gz", "docword.xz", "svmlight", "counts.npz"])
def test_every_format_gives_the_same_model(corpus, data, capsys):
    folder, _ = corpus
    found = []
    for name in ("docword", data):
        assert run_fit(folder, "--json", "--quiet", data=name) == 0
        found.append(json.loads(capsys.readouterr().out)["topics"])
    assert found[0] == found[1]


def test_param_takes_literals_and_strings(corpus, capsys):
    folder, _ = corpus
    assert (
        run_fit(folder, "--json", "--param", "doc_topic_prior=[0.5, 0.1, 0.1]", "sampler=gibbs", "n_jobs=1")
        == 0
    )
    parameters = json.loads(capsys.readouterr().out)["parameters"]
    assert parameters["doc_topic_prior"] == [0.5, 0.1, 0.1]
    assert (parameters["sampler"], parameters["n_jobs"], parameters["n_components"]) == ("gibbs", 1, 3)


def test_docstrings_are_data(monkeypatch, capsys):
    small = datasets.load_docstrings(packages=["tqdm"], min_df=1, max_df=1.0, cache=False)
    monkeypatch.setattr(datasets, "load_docstrings", lambda: small)
    assert main(["fit", "lda", "docstrings", "--json", "--quiet", *PARAMS]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"]["documents"] == small.X.shape[0]
    assert set(found["topics"][0]["words"]) <= set(small.vocabulary)


# save, topics, transform --------------------------------------------------------------------------
def test_topics_of_a_saved_model_have_their_words(corpus, model, capsys):
    lda = sd.load(model)
    expected = lda.topics([f"word{i:02d}" for i in range(60)], 4)
    assert main(["topics", str(model), "--n-words", "4"]) == 0
    assert capsys.readouterr() == (f"{expected}\n", "")
    assert main(["topics", str(model), "--n-words", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["topics"]
    assert [topic["words"] for topic in found] == list(expected)
    np.testing.assert_allclose([topic["probabilities"] for topic in found], expected.probabilities)


def test_topics_take_another_vocabulary(model, tmp_path, capsys):
    (tmp_path / "words").write_text("".join(f"other{i}\n" for i in range(60)))
    assert main(["topics", str(model), "--vocab", str(tmp_path / "words"), "--json"]) == 0
    assert all(word.startswith("other") for word in json.loads(capsys.readouterr().out)["topics"][0]["words"])


def test_topics_without_words_are_numbers_and_say_so(corpus, tmp_path, capsys):
    folder, _ = corpus
    path = tmp_path / "model"
    assert main(["fit", "lda", str(folder / "docword"), *PARAMS, "--save", str(path), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["topics", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert all(word.isdigit() for word in json.loads(out)["topics"][0]["words"])
    assert "--vocab" in err


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv"])
def test_transform_writes_the_shares(corpus, model, ending, tmp_path, capsys):
    folder, X = corpus
    out = tmp_path / f"shares{ending}"
    assert main(["transform", str(model), str(folder / "docword.gz"), "--out", str(out), "--quiet"]) == 0
    assert "150 documents x 3 topics" in capsys.readouterr().out
    if ending == ".csv":
        assert out.read_text().splitlines()[0] == "document,topic0,topic1,topic2"
        found = np.loadtxt(out, delimiter=",", skiprows=1)[:, 1:]
    elif ending == ".npy":
        found = np.load(out, allow_pickle=False)
    else:
        with np.load(out, allow_pickle=False) as arrays:
            found = arrays["doc_topic"]
            assert arrays["documents"].tolist() == [str(i) for i in range(1, 151)]
    np.testing.assert_allclose(found, sd.load(model).transform(X), rtol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_transform_prints_csv_and_json(corpus, model, capsys):
    folder, X = corpus
    expected = sd.load(model).transform(X)
    assert main(["transform", str(model), str(folder / "counts.npz")]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]
    np.testing.assert_allclose(np.array(rows, dtype=float)[:, 1:], expected, rtol=1e-5)
    assert main(["transform", str(model), str(folder / "counts.npz"), "--json"]) == 0
    np.testing.assert_array_equal(json.loads(capsys.readouterr().out)["doc_topic"], expected)


def test_transform_matches_columns_by_their_words(corpus, model, tmp_path, capsys):
    _, X = corpus
    order = np.random.default_rng(0).permutation(60)
    columns = sparse.hstack([X[:, order], sparse.csr_matrix(np.full((150, 1), 2))]).tocsr()
    words = [f"word{i:02d}" for i in order] + ["unheard"]
    datasets.save_uci_bow(columns, tmp_path / "docword", words, vocabulary_path=tmp_path / "vocab")
    arguments = [str(model), str(tmp_path / "docword"), "--vocab", str(tmp_path / "vocab"), "--json"]
    assert main(["transform", *arguments]) == 0
    out, err = capsys.readouterr()
    np.testing.assert_array_equal(json.loads(out)["doc_topic"], sd.load(model).transform(X))
    assert "1 of 61 words, with 300 of" in err


def test_an_svmlight_file_may_end_before_the_last_words(corpus, model, tmp_path, capsys):
    _, X = corpus
    short = sparse.csr_matrix(X[:5].multiply(np.arange(60) < 50))
    dump_svmlight_file(short, np.zeros(5), str(tmp_path / "short"))
    assert main(["transform", str(model), str(tmp_path / "short"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["doc_topic"]
    np.testing.assert_array_equal(found, sd.load(model).transform(short))


# data, info, bench --------------------------------------------------------------------------------------
def test_data_list(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("STRADASK_DATA", str(tmp_path))
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["data", "list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [line.split()[0] for line in lines[1:]] == [entry["name"] for entry in entries]
    assert {"docstrings", "nytimes", "movielens-100k"} <= {entry["name"] for entry in entries}
    assert [entry["name"] for entry in entries if entry["cached"]] == ["docstrings"]


def test_data_get_prints_where_the_files_are(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(datasets, "download", lambda name, verbose: [tmp_path / name, tmp_path / "vocab"])
    assert main(["data", "get", "kos"]) == 0
    assert capsys.readouterr() == (f"{tmp_path / 'kos'}\n{tmp_path / 'vocab'}\n", "")
    assert main(["data", "get", "kos", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["paths"] == [str(tmp_path / "kos"), str(tmp_path / "vocab")]


@pytest.mark.parametrize(
    ("name", "kind"), [("docword.gz", "uci-bow"), ("svmlight", "svmlight"), ("counts.npz", "npz (csr)")]
)
def test_data_info(corpus, name, kind, capsys):
    folder, X = corpus
    assert main(["data", "info", str(folder / name), "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["shape"], found["nnz"]) == (kind, [150, 60], X.nnz)
    assert found["bytes"] == (folder / name).stat().st_size
    assert main(["data", "info", str(folder / name), "--quiet"]) == 0
    assert f"{X.nnz:,}" in capsys.readouterr().out


def test_info(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("STRADASK_DATA", str(tmp_path))
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["packages"]["numpy"] == np.__version__
    assert found["packages"]["numba"] == version("numba")
    assert 1 <= found["cpu"]["threads_of_n_jobs_minus_1"] <= found["cpu"]["cores"]
    assert found["gpu"]["usable"] is (found["gpu"]["why"] is None)
    assert found["folders"]["data"] == str(tmp_path)
    assert main(["info"]) == 0
    assert np.__version__ in capsys.readouterr().out


@pytest.mark.cluster
def test_a_fit_on_a_cluster_and_what_is_known_of_it(tmp_path, capsys):
    from distributed import Client, LocalCluster

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    rows = (f"{y:g} 1:{a} 2:{b} 3:{c}" for y, (a, b, c) in zip(X @ [1.0, -2.0, 0.0], X, strict=True))
    (tmp_path / "rows.svm").write_text("\n".join(rows))
    words = ["fit", "ridge", str(tmp_path / "rows.svm"), "--json", "--quiet"]
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**options) as there, Client(there):
        address = there.scheduler_address
        assert main([*words, "--cluster", address]) == 0
        far = json.loads(capsys.readouterr().out)
        assert main(["info", "--json", "--cluster", address]) == 0
        found = json.loads(capsys.readouterr().out)["cluster"]
        assert main(["info", "--cluster", address]) == 0
        text = capsys.readouterr().out
    assert far["parameters"]["engine"] == address
    assert main(words) == 0
    near = json.loads(capsys.readouterr().out)
    assert near["parameters"]["engine"] == "local"
    assert [worker["threads"] for worker in found["workers"]] == [1, 1]
    assert {worker["stradask"] for worker in [found["scheduler"], *found["workers"]]} == {sd.__version__}
    assert f"{address}; 2 workers" in text
    assert "not installed" not in text


@pytest.mark.cluster
def test_what_the_machine_can_do_at_most(monkeypatch, capsys):
    from stradask.benchmarks import ceilings

    memory = ceilings.memory
    monkeypatch.setattr(ceilings, "memory", lambda n_jobs, megabytes: memory(2, 4))
    assert main(["info", "--json", "--measure"]) == 0
    found = json.loads(capsys.readouterr().out)["ceilings"]
    assert set(found["copy_gb_s"]) == set(found["gather_m_s"]) == {"1", "2"}
    assert all(
        value > 0 for name in ("copy_gb_s", "read_gb_s", "gather_m_s") for value in found[name].values()
    )
    assert min(found["task_ms"], found["round_ms"]) > 0
    rows = dict(ceilings.as_rows(found))
    assert f"{found['copy_gb_s']['1']:.1f} on 1 thread, " in rows["copying"]


def test_a_worker_that_cannot_fit_is_named():
    from stradask.cli.info import _cluster_rows

    seen = {"address": "tcp://x:1", "threads": 4, "memory_gb": 8.0, "numba": None, "distributed": "2026.8.0"}
    rows = _cluster_rows(
        {
            "address": "tcp://s:8786",
            "scheduler": {"stradask": None, "numba": None, "distributed": "2026.8.0"},
            "workers": [seen | {"stradask": "0.0.1"}],
        }
    )
    assert "stradask is not installed: no fit can run there" in rows[1][1]
    assert f"stradask 0.0.1, here {sd.__version__}: install the same version" in rows[2][1]


@pytest.mark.parametrize(
    ("script", "devices", "why"),
    [
        ("echo 'Card of the test, 1024 MiB'", ["Card of the test, 1024 MiB"], "stradask[cuda]"),
        ("echo 'No devices were found'; exit 6", [], "No devices were found"),
        (None, [], "no NVIDIA driver"),
    ],
)
def test_info_says_why_there_is_no_gpu(script, devices, why, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "cupy", None)
    if script is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    assert main(["info", "--json"]) == 0
    gpu = json.loads(capsys.readouterr().out)["gpu"]
    assert (gpu["usable"], gpu["devices"]) == (False, devices)
    assert why in gpu["why"]


def test_info_finds_a_gpu_without_nvidia_smi(monkeypatch, tmp_path, capsys):
    """Containers that have a GPU may lack the program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with standing_in(SimpleNamespace(name="Card of a container")):
        assert main(["info", "--json"]) == 0
    gpu = json.loads(capsys.readouterr().out)["gpu"]
    assert gpu == {"usable": True, "devices": ["Card of a container"], "why": None}


def test_bench_is_the_runner_of_the_benchmarks(monkeypatch):
    seen = []
    monkeypatch.setattr(bench_command, "main", lambda args: seen.append(args) or 1)
    assert main(["bench", "lda", "--against", "sklearn", "gensim", "--repeats", "2"]) == 1
    assert (seen[0].family, seen[0].against, seen[0].repeats) == ("lda", ["sklearn", "gensim"], 2)


def test_words_that_stand_twice_are_not_matched(tmp_path, capsys):
    (tmp_path / "counts.txt").write_text("3\n3\n4\n1 1 5\n1 2 3\n2 2 4\n3 3 6\n")
    (tmp_path / "twice.txt").write_text("ant\nant\ncow\n")
    (tmp_path / "once.txt").write_text("ant\nbee\ncow\n")
    counts, model = str(tmp_path / "counts.txt"), str(tmp_path / "m.npz")
    options = ["--param", "n_components=2", "max_iter=3", "--quiet", "--save", model]
    assert main(["fit", "lda", counts, "--vocab", str(tmp_path / "twice.txt"), *options]) == 0
    assert main(["transform", model, counts, "--vocab", str(tmp_path / "twice.txt"), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["transform", model, counts, "--vocab", str(tmp_path / "once.txt"), "--quiet"]) == 2
    assert "not all different" in capsys.readouterr().err
