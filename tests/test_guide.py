"""The code that the guide's pages show runs, on little data and with smaller figures."""

import copy
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import stradask as sd

DOCS = Path(__file__).parents[1] / "docs"

# What a page says, and what stands for it here so that it runs within seconds.
CHEAPER = {
    "DynamicTopicModel(20,": "DynamicTopicModel(4, max_iter=5,",
    "HDPTopicModel(100,": "HDPTopicModel(50, max_iter=160,",
    "LatentDirichletAllocation(20, max_iter=1000,": "LatentDirichletAllocation(4, max_iter=80,",
    "LatentDirichletAllocation(100, max_iter=500, n_jobs=-1,": "LatentDirichletAllocation(4, max_iter=5,",
    "LatentDirichletAllocation(n_jobs=-1,": "LatentDirichletAllocation(max_iter=5,",
    "LatentDirichletAllocation(labels.shape[1])": "LatentDirichletAllocation(labels.shape[1], max_iter=5)",
    "LatentDirichletAllocation(1000,": "LatentDirichletAllocation(3, max_iter=3,",
    "LatentDirichletAllocation(100,": "LatentDirichletAllocation(3, max_iter=3,",
    "[20, 50, 100, 200]": "[2, 3]",
    "topics=[3, 7]": "topics=[1, 3]",
    "topic=7": "topic=1",
    "min_df=5": "min_df=1",
    "min_tokens=50": "min_tokens=5",
    "info.round % 50": "info.round % 2",
    # Not a library that tests require.
    "import pyLDAvis\n": "",
    'pyLDAvis.save_html(pyLDAvis.prepare(**lda.to_ldavis(X, words)), "topics.html")': "lda.to_ldavis(X)",
    "100_000": "30",
    "docword.pubmed.txt.gz": "corpus/docword.1.txt.gz",
    "n_features=102_660": "n_features=60",
    'device="cuda"': 'device="cpu"',
    "make_ratings(3000, 1000,": "make_ratings(300, 100,",
    "standard_normal((1000, 3))": "standard_normal((100, 3))",
    "standard_normal((2000, 3))": "standard_normal((200, 3))",
    ":990]": ":90]",
    "990:]": "90:]",
    "np.arange(990, 1000)": "np.arange(90, 100)",
    "[0, 990]": "[0, 90]",
    "density=0.05": "density=0.3",
    "density=0.005": "density=0.02",
    "Client(LocalCluster(n_workers=4, threads_per_worker=2))": "Client(address)",
    'Client("tcp://scheduler:8786")': "Client(address)",
    '"/fast/disk"': "folder",
}


def blocks(page):
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run_page(page, names):
    """Run all blocks of a page, one after another; returns the names that they leave."""
    for block in blocks(page):
        for said, instead in CHEAPER.items():
            block = block.replace(said, instead)
        exec(compile(block, f"{page}.md", "exec"), names)
    return names


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A current folder with a file of counts; returns these counts."""
    monkeypatch.chdir(tmp_path)
    counts, *_ = sd.datasets.make_lda_corpus(60, n_features=60, n_components=3, random_state=0)
    (tmp_path / "corpus").mkdir()
    sd.datasets.save_uci_bow(counts, tmp_path / "corpus/docword.1.txt.gz")
    return counts


@pytest.fixture(autouse=True)
def _configuration_of_dask_is_kept():
    """Pages set values of Dask's configuration for good, as users do."""
    config = pytest.importorskip("dask").config
    before = copy.deepcopy(config.config)
    yield
    config.config.clear()
    config.config.update(before)


@pytest.fixture(autouse=True)
def _no_windows(monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def test_topics(corpus, capsys):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    letters = "abcdefgh"
    words = ["goal", "match", "vote", "party", *(f"word{a}{b}" for a in letters[:7] for b in letters)]
    names = {
        "texts": [" ".join(rng.choice(words, 10)) for _ in range(60)],
        "X_test": corpus[:5],
        "published": pd.Series(pd.date_range("2020-01-01", periods=60, freq="20D")),
        "tags": [["a"], ["b", "c"]] * 30,
        "gensim_model": type("Given", (), {"get_topics": lambda self: np.full((4, 60), 1 / 60)})(),
    }
    run_page("topics", names)
    assert names["search"].best_params_["n_components"] in (2, 3)
    assert names["lda"].components_.shape == (4, 60)
    printed = capsys.readouterr().out
    assert "topic  share  words" in printed
    assert re.search(r"^4 nan [\d.]+$", printed, re.MULTILINE)  # what the callback says


def test_the_table_at_the_top_of_the_page_of_tables(capsys):
    pytest.importorskip("pandas")
    exec(compile(blocks("tables")[0], "tables.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("accuracy 0.9")
    assert [line.split("  ")[-1] for line in (printed[1], printed[-1])] == ["note: happy", "plan_basic"]


def test_sparse_linear():
    names = run_page("sparse-linear", {})
    assert set(range(5)) <= set(names["model"].sparse_coef_.indices)  # as the page says


def test_matrix_factorization(capsys):
    run_page("matrix-factorization", {})
    printed = capsys.readouterr().out
    assert "['ale']" in printed  # as the page says
    assert "ndcg" in printed


def test_item_models(capsys):
    names = run_page("item-models", {})
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert float(printed["EASE"]) > float(printed["Popularity"]) > 0
    assert names["why"].items.shape == (3,)


def test_a_table_of_parameters():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = X @ [1.0, -2.0, 0.5]
    portions = [(X[:100], y[:100]), (X[100:], y[100:])]
    run = run_page("ssp", {"portions": portions, "n_features": 3})["run"]
    np.testing.assert_allclose(run.values[0], [1.0, -2.0, 0.5], atol=1e-4)


def test_a_gpu_or_the_same_model_without(corpus):
    assert run_page("gpu", {"X": corpus})["lda"].components_.shape == (3, 60)


@pytest.mark.cluster
def test_several_machines(corpus, address):
    dask = pytest.importorskip("dask")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    with dask.config.set():
        names = run_page("distributed", {"address": address, "X": X, "y": X[:, 0]})
        assert dask.config.get("stradask.timeout") == "30s"
    assert names["model"].coef_[0] > 0.5
    names["client"].close()


@pytest.mark.cluster
def test_topics_on_several_machines(corpus, address, tmp_path):
    names = run_page("distributed-topics", {"address": address, "folder": tmp_path})
    assert names["lda"].components_.shape == (3, 60)
    names["client"].close()


def test_ways_to_a_cluster_are_called_as_dask_wants_it(monkeypatch):
    """Certificates are taken for real; of a cluster with ssh, the arguments are looked at."""
    distributed = pytest.importorskip("distributed")
    wanted, asked = inspect.signature(distributed.SSHCluster), []
    monkeypatch.setattr(distributed, "Client", lambda address, **options: asked.append((address, options)))
    monkeypatch.setattr(distributed, "LocalCluster", inspect.signature(distributed.LocalCluster).bind)
    monkeypatch.setattr(distributed, "SSHCluster", wanted.bind)
    for module in ("dask.distributed", "distributed"):  # which import from each other
        monkeypatch.setitem(sys.modules, module, distributed)
    ours = [block for block in blocks("cluster") if "Client(" in block and "dask_" not in block]
    assert len(ours) == 3  # others are not installed
    for block in ours:
        exec(compile(block, "cluster.md", "exec"), {})
    (local, _), (ssh, _), (address, options) = asked
    assert local.arguments["n_workers"] == 2
    assert not {"remote_python", "worker_options"} - ssh.arguments.keys()
    assert address.startswith("tls://")
    assert options["security"].require_encryption
    assert options["security"].tls_client_key == "me-key.pem"
