"""The stories of examples/ run, on less data, and find what they say; the site shows each with a picture."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
ROOT = Path(__file__).parents[1]
STORIES = (
    "topics_of_a_collection",
    "sparse_path",
    "shards_of_a_posterior",
    "bayesian_on_a_cluster",
    "federated_sites",
)


def story(name):
    """The module of a script."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", STORIES)
def test_the_site_shows_every_story_with_its_picture(name):
    page = (ROOT / "docs" / "stories.md").read_text(encoding="utf-8")
    part = page.split(f"examples/{name}.py", 1)[1].split("\n## ")[0]
    picture = re.search(r"!\[[^\]]+\]\(([\w-]+\.png)\)", part)
    assert picture is not None
    assert (ROOT / "docs" / picture[1]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_topics_of_a_collection(tmp_path, capsys):
    lda, perplexities = story("topics_of_a_collection").main((4, 12), 40, most=1200, out=tmp_path)
    assert perplexities[12] < perplexities[4]
    assert lda.n_components == 12
    printed = capsys.readouterr().out
    assert "a text about eigenvalues" in printed
    assert (tmp_path / "topics.npz").exists()
    assert (tmp_path / "topics-story.png").exists()


@pytest.mark.slow
def test_a_sparse_path(tmp_path):
    model, chosen, truth = story("sparse_path").main(n_features=3_000, out=tmp_path)
    true = set(np.flatnonzero(truth))
    assert true <= set(np.flatnonzero(model.coef_))
    assert np.count_nonzero(chosen.coef_) < np.count_nonzero(model.coef_)
    assert (tmp_path / "sparse-path.png").exists()


@pytest.mark.slow
def test_shards_of_a_posterior(tmp_path):
    found = story("shards_of_a_posterior").main(rows=16_000, n_samples=500, out=tmp_path)
    assert found["auto"] < 0.15
    assert found["auto"] < found["average"]
    assert (tmp_path / "shards-story.png").exists()


@pytest.mark.slow
@pytest.mark.cluster
def test_a_posterior_on_a_cluster(tmp_path, capsys):
    pytest.importorskip("distributed")
    told = story("bayesian_on_a_cluster")
    model, average, off = told.main(n_shards=4, n_rows=2_000, n_samples=300, out=tmp_path)
    miss = (model.coef_[0] - told.TRUTH) / model.posterior_.sd()["coef"]
    assert np.abs(miss).max() < 4
    assert off["intercept"] > 0.2  # so few events: what is averaged is skewed
    assert average.posterior_.draws.shape == model.posterior_.draws.shape
    assert "90 % intervals" in capsys.readouterr().out
    assert (tmp_path / "cluster-story.png").exists()


@pytest.mark.slow
@pytest.mark.cluster
def test_federated_sites(tmp_path, capsys):
    distributed = pytest.importorskip("distributed")
    model, off, counts, received = story("federated_sites").main(300, tmp_path, distributed.Worker)
    assert off.max() < 0.15
    assert model.n_shards_ == 4
    assert {counts[site, "draws"] for site in ("north", "east", "south", "west")} == {2 * (1 + 3)}
    assert not any(received.values())
    assert "without west the posterior is" in capsys.readouterr().out
    assert (tmp_path / "federated-story.png").exists()
