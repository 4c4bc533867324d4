"""The pages of docs/: every page and every public name is there, and the code that they show runs."""

import importlib.util
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import stradask
from stradask import datasets, errors, scheduler

DOCS = Path(__file__).parents[1] / "docs"


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(name):
    return re.findall(r"^```python\n(.*?)^```", text_of(name), re.DOTALL | re.MULTILINE)


def names_of(module):
    parts = (DOCS / "api.md").read_text(encoding="utf-8").split(".. currentmodule:: ")[1:]
    listed = [part.split("```")[0].splitlines() for part in parts]
    return {line.strip() for lines in listed if lines[0] == module for line in lines[5:] if line.strip()}


@pytest.mark.parametrize("module", [stradask, datasets, scheduler, errors])
def test_the_reference_lists_every_public_name(module):
    if module is errors:
        public = {name for name, value in vars(errors).items() if isinstance(value, type)}
    else:
        public = {name for name in module.__all__ if not name.startswith("_")}
    assert names_of(module.__name__) == public - {"datasets", "errors", "functions", "priors", "scheduler"}


@pytest.mark.parametrize("module", [stradask, datasets, scheduler])
def test_the_design_names_every_public_name(module):
    words = set(re.findall(r"\w+", text_of("design.md")))
    assert {name for name in module.__all__ if not name.startswith("_")} - words == set()


@pytest.mark.parametrize("module", ["functions", "priors"])
def test_the_reference_lists_every_prior_and_compiled_function(module):
    assert names_of(f"stradask.algorithms.bayes.{module}") == set(getattr(stradask, module).__all__)


def test_the_index_lists_every_page():
    toctrees = re.findall(
        r"```{toctree}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL
    )
    listed = [line for tree in toctrees for line in tree.splitlines() if line and not line.startswith(":")]
    assert len(listed) == len(set(listed))
    made = {f"generated/{name}/index" for name in ("start", "gallery")}  # of examples/, which the build runs
    assert set(listed) == {path.stem for path in DOCS.glob("*.md")} - {"index"} | made


def test_links_between_pages_lead_somewhere():
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_a_combiner_of_ones_own(capsys):
    from stradask.algorithms.bayes.combine.combiners import COMBINERS

    stradask.BayesianLinearRegression().get_params()  # which is there before the entry is
    names: dict = {}
    found = blocks("add-a-combiner.md")
    assert len(found) == 3
    try:
        for block in found:
            exec(compile(block, "add-a-combiner.md", "exec"), names)
    finally:
        COMBINERS.pop("diagonal", None)
    assert capsys.readouterr().out.splitlines() == ["True", "True", "diagonal of 2 shards"]


def test_plans_are_what_the_page_shows(capsys):
    names: dict = {}
    for block in blocks("which-plan.md"):
        exec(compile(block, "which-plan.md", "exec"), names)
    shown = re.findall(r"^```text\n(.*?)^```", text_of("which-plan.md"), re.DOTALL | re.MULTILINE)
    assert capsys.readouterr().out == "".join(shown)


@pytest.mark.parametrize("page", ["add-a-sampler.md", "add-a-kernel.md"])
def test_what_a_page_adds_works_as_it_says(page, capsys):
    names: dict = {}
    for block in blocks(page):
        exec(compile(block, page, "exec"), names)
    assert capsys.readouterr().out.split() == ["True"] * (4 if page == "add-a-sampler.md" else 2)


TINY = {
    "max_iter=200": "max_iter=20",
    "passes=10": "passes=1",
    "LatentDirichletAllocation(20,": "LatentDirichletAllocation(3,",
    "n_warmup=500, n_samples=500": "n_warmup=200, n_samples=200",
}


# The page's code with a part of its draws: whether it runs. The warnings have tests of their own.
@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
@pytest.mark.parametrize(
    ("number", "given"),
    [
        (0, "topics"),
        (1, "gensim"),
        (2, "texts"),
        (3, "rows"),
        (4, "blocks"),
        (5, "plays"),
        (6, "frame"),
        (7, "rows"),
    ],
)
def test_our_side_of_a_migration_runs(number, given):
    ours = blocks("migrating.md")
    theirs = re.findall(r"^```python theirs\n(.*?)^```", text_of("migrating.md"), re.DOTALL | re.MULTILINE)
    assert len(ours) == len(theirs) == 8
    compile(theirs[number], "migrating.md", "exec")
    block = ours[number]
    for said, instead in TINY.items():
        block = block.replace(said, instead)
    names = MIGRANTS[given]()
    exec(compile(block, "migrating.md", "exec"), names)
    made = names.get("lda") or names["model"]
    assert hasattr(made, "n_features_in_") or hasattr(made, "user_factors_")
    if number == 0:
        assert names["shares"].shape == (5, 3)
        assert len(names["words"][0]) == 10
    if number == 2:
        assert names["shares"].sum() == pytest.approx(1)
    if number == 4:
        np.testing.assert_allclose(names["shares"].sum(axis=1), 1)
    if number == 6:
        assert 0 < names["errors"].mean() < 2
    if number == 5:
        assert len(names["ids"].ravel()) == len(names["like_it"].ravel()) == 5


def counts():
    return datasets.make_lda_corpus(60, n_features=40, n_components=3, random_state=0)[0]


def topics_data():
    X = counts()
    return {"sd": stradask, "X": X, "X_new": X[:5], "vocabulary": [f"w{i}" for i in range(40)]}


def gensim_data():
    X = counts().tocsr()
    corpus = [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(X.indptr)
    ]
    return {"sd": stradask, "corpus": corpus, "id2word": {i: f"w{i}" for i in range(40)}}


def texts_data():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(30, size=20)) for _ in range(50)]
    return {"sd": stradask, "texts": texts, "new_text": texts[0]}


def rows_data():
    X, y, _ = datasets.make_sparse_regression(120, 15, n_informative=3, density=0.5, random_state=0)
    return {"sd": stradask, "X": X.toarray(), "y": y, "labels": (y > np.median(y)).astype(int)}


def blocks_data():
    array = pytest.importorskip("dask.array")
    given = rows_data()
    return given | {"blocks": array.from_array(given["X"], (50, -1)), "labels": given["labels"]}


def plays_data():
    plays, _ = datasets.make_ratings(60, 30, 3, density=0.3, implicit=True, random_state=0)
    return {"sd": stradask, "plays": plays}


def frame_data():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    users = np.repeat(["ann", "bob", "cat", "dan", "eve"], 6)
    items = np.tile(["tea", "jam", "ale", "rye", "egg", "ham"], 5)
    return {
        "sd": stradask,
        "df": pandas.DataFrame({"user": users, "item": items, "rating": rng.integers(1, 6, 30)}),
    }


MIGRANTS = {
    "topics": topics_data,
    "gensim": gensim_data,
    "texts": texts_data,
    "rows": rows_data,
    "blocks": blocks_data,
    "plays": plays_data,
    "frame": frame_data,
}

GUIDES = (
    "topics",
    "topics-covariates",
    "topics-responses",
    "distributed-topics",
    "gpu",
    "sparse-linear",
    "optimize",
    "ssp",
    "mcmc",
    "matrix-factorization",
)


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_page_begins_with_what_one_asks_first_and_has_a_picture(page):
    text = text_of(f"{page}.md")
    head = text.split("\n## ")[0]
    for asked in ("computes", "use it", "the result", "cost", "distributed", "sources"):
        assert f"\n| {asked} | " in head
    pictures = re.findall(r"!\[([^\]]+)\]\(([\w-]+\.png)\)", text)
    assert pictures
    for alternative, name in pictures:
        assert len(alternative) > 20
        assert (DOCS / name).read_bytes().startswith(b"\x89PNG")


def test_every_picture_is_shown_and_made_by_a_command():
    shown = {
        name for page in DOCS.glob("*.md") for name in re.findall(r"\(([\w-]+\.png)\)", page.read_text())
    }
    shown |= {
        f"{name}.png" for name in re.findall(r"docs/([\w-]+)\.png", (DOCS.parent / "README.md").read_text())
    }
    assert {path.name for path in DOCS.glob("*.png")} == shown
    scripts = [
        path.read_text()
        for folder in ("docs", "examples", "benchmarks")
        for path in DOCS.parent.joinpath(folder).rglob("*.py")
    ]
    commands = [*scripts, *(path.read_text() for path in DOCS.glob("*.md"))]
    for name in shown:
        made = Path(name).stem.removeprefix("bench-")
        assert sum(made in text for text in commands) > 1, f"{name}: which command draws it?"


@pytest.mark.slow
def test_the_pictures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    pictures.main(["--small", "--out", str(tmp_path)])
    assert {path.stem for path in tmp_path.glob("*.png")} == set(pictures.PICTURES)


@pytest.mark.parametrize("page", sorted({path.name for path in DOCS.glob("*.md")} - {"design.md"}))
def test_code_that_needs_a_cluster_or_data_is_python_at_least(page):
    for block in blocks(page):
        compile(block, page, "exec")
