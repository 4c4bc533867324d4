"""Docstrings as a corpus: what is taken, what is left out, and a cache that is never fatal."""

import importlib.metadata
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from stradask.datasets import at_hand
from stradask.datasets.at_hand import Corpus, load_docstrings
from stradask.errors import DataError

FILLER = " ".join(["apple"] * 4 + ["pear"] * 4 + ["plum"] * 2)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write an installed package of the files given, with or without a version."""
    site, distributions = tmp_path / "site", importlib.metadata.distributions
    # To look through all that is installed takes a second at every call.
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: distributions(path=[str(site)]))

    def write(files, name="orchard", version="1.0"):
        for place, text in files.items():
            path = site / name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if version:
            info = site / f"{name}_dist-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: {version}\n")
            (info / "top_level.txt").write_text(name)
        return name

    monkeypatch.syspath_prepend(site)
    return write


def load(name="orchard", **options):
    return load_docstrings(packages=[name], **{"min_df": 1, "max_df": 1.0, "cache": False} | options)


def document(corpus, name):
    """Words of one document with their counts."""
    (row,) = np.flatnonzero(corpus.names == name)
    X = corpus.X[[row]]
    return dict(zip(corpus.vocabulary[X.indices].tolist(), X.data.tolist(), strict=True))


def test_documents_are_modules_classes_and_functions(package):
    words = ["cherry", "quince", "medlar", "walnut", "almond", "sorrel", "fennel", "nettle", "hazel", "elder"]
    text = {word: '"""' + f"{word} " * 11 + '"""' for word in words}
    package(
        {
            "__init__.py": f"{text['cherry']}\nimport does_not_exist\n",
            "trees.py": f"""{text["quince"]}
class Tree:
    {text["medlar"]}
    def grow(self):
        {text["walnut"]}
        def hidden():
            {text["fennel"]}
    async def wait(self):
        {text["sorrel"]}
try:
    def found(): {text["almond"]}
except ImportError:
    def fallback(): {text["hazel"]}
""",
            "deep/typed.pyi": f"def stub():\n    {text['elder']}\n",
            "tests/test_trees.py": text["nettle"],
            "test_more.py": text["nettle"],
            "broken.py": '"""' + "nettle " * 11 + '"""\nprint "old python"\n',
        }
    )
    corpus = load()
    assert {name: document(corpus, name) for name in corpus.names} == {
        "orchard": {"cherry": 11},
        "orchard.trees": {"quince": 11},
        "orchard.trees.Tree": {"medlar": 11},
        "orchard.trees.Tree.grow": {"walnut": 11},
        "orchard.trees.Tree.wait": {"sorrel": 11},
        "orchard.trees.found": {"almond": 11},
        "orchard.trees.fallback": {"hazel": 11},
        "orchard.deep.typed.stub": {"elder": 11},
    }
    assert "does_not_exist" not in sys.modules
    assert "orchard" not in sys.modules


def test_prose_is_kept_and_code_is_not(package):
    package(
        {
            "fruit.py": f'''r"""Ripe {FILLER} fruits, non-negative.

    Parameters
    ----------
    basket : arraylike, optional
        Holds quinces, see `orchard.press` and :func:`crush` at https://cider.example/barrel.
    n_cherries, x2 : integer
        Call squeeze(cherries=3) for \\\\alpha or n_pips of 0x1f.

    Examples
    --------
    >>> harvest = 1

    Notes
    -----
    Medlars ripen late.

    >>> shake
    windfall

    Afterwards rest.

    See Also
    --------
    vinegar : sour
    """'''
        }
    )
    kept = ["fruits", "ripe", "negative", "quinces", "medlars", "ripen", "late", "rest"]
    assert document(load(), "orchard.fruit") == {"apple": 4, "pear": 4, "plum": 2} | dict.fromkeys(kept, 1)


def test_repeats_and_short_documents_are_dropped(package):
    base = "apple pear plum cherry quince medlar walnut almond sorrel fennel"
    package(
        {
            "a.py": f'"""{base}"""',
            "b.py": f'"""{base} {base}"""',  # the same words
            "c.py": f'"""{base} nettle hazel"""',  # 10 of 12 shared: above four fifths
            "d.py": f'"""{base} barley clover thyme"""',  # 10 of 13: below
            "e.py": '"""one apple only"""',
        }
    )
    assert load().names.tolist() == ["orchard.a", "orchard.d"]


def test_repeats_are_those_that_comparing_all_pairs_finds():
    rng = np.random.default_rng(0)
    base = rng.random((40, 30)) < 0.5
    rows = np.vstack([base, base ^ (rng.random(base.shape) < 0.06), base ^ (rng.random(base.shape) < 0.12)])
    rows[7] = False
    words = rows.astype(np.int32)
    shared = words @ words.T
    sizes = words.sum(axis=1)
    union = sizes[:, None] + sizes - shared
    similar = (shared >= at_hand._SAME * union) & (union > 0)
    expected = np.tril(similar, k=-1).any(axis=1)
    assert 20 < expected.sum() < 70  # so that both answers are tried
    np.testing.assert_array_equal(at_hand._repeats(sparse.csr_matrix(words)), expected)


def test_document_frequencies_bound_the_vocabulary(package):
    rare = ["cherry", "quince", "medlar", "walnut"]
    unlike = [" ".join(f"{word}{c}" for c in "abcdefghij") for word in rare]
    package({f"m{i}.py": f'"""{FILLER} {text}"""' for i, text in enumerate(unlike)})
    assert len(load().vocabulary) == 43
    assert load(min_df=2).vocabulary.tolist() == ["apple", "pear", "plum"]
    assert len(load(max_df=0.5).vocabulary) == 40
    assert len(load(max_df=3).vocabulary) == 40


def test_result_unpacks_to_counts_and_words(package):
    package({"m.py": f'"""{FILLER}"""'})
    corpus = load()
    X, vocabulary = corpus
    assert isinstance(corpus, Corpus)
    assert X is corpus.X
    assert X.dtype == np.int32
    assert X.toarray().tolist() == [[4, 4, 2]]
    assert vocabulary.tolist() == ["apple", "pear", "plum"]
    assert corpus.packages == {"orchard": "1.0"}
    assert repr(corpus) == "<Corpus: 1 documents, 3 words, 10 tokens from orchard 1.0>"


def test_several_packages_come_in_the_order_asked_for(package):
    package({"m.py": f'"""{FILLER}"""'})
    package({"m.py": '"""' + "hedge " * 12 + '"""'}, name="garden", version="2.0")
    corpus = load_docstrings(packages=("garden", "orchard"), min_df=1, max_df=1.0, cache=False)
    assert corpus.names.tolist() == ["garden.m", "orchard.m"]
    assert corpus.packages == {"garden": "2.0", "orchard": "1.0"}


def test_single_module_files_are_packages_too(tmp_path, monkeypatch):
    (tmp_path / "shed.py").write_text(f'"""{FILLER}"""\n')
    (tmp_path / "test_shed.py").write_text('"""' + "nettle " * 12 + '"""')
    monkeypatch.syspath_prepend(tmp_path)
    assert load("shed").names.tolist() == ["shed"]


@pytest.mark.parametrize("name", ["no_such_package", "numpy.linalg", "__main__", "sys", ""])
def test_package_that_cannot_be_read_is_named(name):
    with pytest.raises(DataError, match=f"packages: {name!r} is not an installed package"):
        load(name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"packages": "numpy"}, "packages must be a list or tuple"),
        ({"packages": [3]}, "packages must hold import names"),
        ({"packages": []}, "packages: none of them is installed"),
        ({"min_df": 0}, "min_df must be a finite number at least 1; got 0"),
        ({"max_df": 1.5}, "max_df must be a finite number at least 0 and at most 1; got 1.5"),
        ({"max_df": "all"}, "max_df must be"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(DataError, match=message):
        load_docstrings(cache=False, **options)


def test_packages_without_words_are_refused(package):
    package({"m.py": "pass"})
    with pytest.raises(DataError, match="no docstrings in the source files of 'orchard'"):
        load()
    package({"m.py": '"""Three words only."""'}, name="garden")
    with pytest.raises(DataError, match="no document has 10 words"):
        load("garden")
    package({"m.py": f'"""{FILLER}"""'}, name="meadow")
    with pytest.raises(DataError, match="no word of these packages is left between min_df=5"):
        load("meadow", min_df=5)


# ------------------------------------------------------------------------------ the cache


@pytest.fixture
def reads(monkeypatch):
    """Count how often packages are read."""
    calls = []
    build = at_hand._build
    monkeypatch.setattr(at_hand, "_build", lambda *arguments: calls.append(1) or build(*arguments))
    return calls


def assert_same(one, other):
    assert (one.X != other.X).nnz == 0
    assert one.X.dtype == other.X.dtype
    for name in ("vocabulary", "names"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
    assert one.packages == other.packages


def test_second_call_reads_the_cache(package, tmp_path, reads):
    package({"m.py": f'"""{FILLER}"""'})
    first = load(cache=True, data_home=tmp_path / "new" / "home")
    second = load(cache=True, data_home=tmp_path / "new" / "home")
    assert len(reads) == 1
    assert_same(first, second)
    load(cache=True, data_home=tmp_path / "new" / "home", min_df=0.5)
    assert len(reads) == 2  # other arguments are another corpus
    assert len(list((tmp_path / "new" / "home").iterdir())) == 2  # and nothing is left beside them


def test_environment_names_the_folder(package, tmp_path, monkeypatch):
    package({"m.py": f'"""{FILLER}"""'})
    monkeypatch.setenv("STRADASK_DATA", str(tmp_path / "home"))
    load(cache=True)
    assert len(list((tmp_path / "home").glob("docstrings-*.npz"))) == 1


def test_another_version_is_another_corpus(package, tmp_path, reads):
    package({"m.py": f'"""{FILLER}"""'})
    load(cache=True, data_home=tmp_path / "home")
    (info,) = (tmp_path / "site").glob("*.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: orchard-dist\nVersion: 1.1\n")
    assert load(cache=True, data_home=tmp_path / "home").packages == {"orchard": "1.1"}
    assert len(reads) == 2


def test_unknown_version_is_never_cached(package, tmp_path):
    package({"m.py": f'"""{FILLER}"""'}, version=None)
    assert load(cache=True, data_home=tmp_path / "home").packages == {"orchard": None}
    assert not (tmp_path / "home").exists()


def damage_truncate(path):
    path.write_bytes(path.read_bytes()[:200])


def damage_empty(path):
    path.write_bytes(b"")


def damage_foreign(path):
    path.write_text("not an archive")


def damage_bits(path):
    content = bytearray(path.read_bytes())
    content[80] ^= 255
    path.write_bytes(content)


def damage_header(path):
    with np.load(path) as file:
        arrays = dict(file)
    arrays["header"] = np.array("{}")
    np.savez_compressed(path, **arrays)


def damage_index(path):
    with np.load(path) as file:
        arrays = dict(file)
    arrays["indices"] = arrays["indices"] + 7
    np.savez_compressed(path, **arrays)


def damage_names(path):
    with np.load(path) as file:
        arrays = dict(file)
    arrays["names"] = arrays["names"][:0]
    np.savez_compressed(path, **arrays)


def damage_missing(path):
    with np.load(path) as file:
        arrays = dict(file)
    del arrays["vocabulary"]
    np.savez_compressed(path, **arrays)


def damage_pickle(path):
    with np.load(path) as file:
        arrays = dict(file)
    arrays["names"] = arrays["names"].astype(object)
    np.savez_compressed(path, **arrays)


@pytest.mark.parametrize(
    "damage", [value for name, value in sorted(globals().items()) if name.startswith("damage_")]
)
def test_damaged_cache_is_read_anew_with_one_warning(damage, package, tmp_path, reads):
    package({"m.py": f'"""{FILLER}"""'})
    first = load(cache=True, data_home=tmp_path / "home")
    (path,) = (tmp_path / "home").iterdir()
    damage(path)
    with pytest.warns(UserWarning, match="this cache of docstrings is passed over") as caught:
        second = load(cache=True, data_home=tmp_path / "home")
    assert len(caught) == 1
    assert str(path) in str(caught[0].message)
    assert caught[0].filename == __file__
    assert_same(first, second)
    load(cache=True, data_home=tmp_path / "home")
    assert len(reads) == 2  # the damaged file has been replaced


def test_folder_that_cannot_be_made_costs_a_warning(package, tmp_path):
    package({"m.py": f'"""{FILLER}"""'})
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="could not be kept for the next call") as caught:
        corpus = load(cache=True, data_home=tmp_path / "file")
    assert len(caught) == 1
    assert corpus.X.sum() == 10


# ------------------------------------------------------------------ what is really installed


def test_packages_are_parsed_and_not_imported():
    code = """
import sys
from stradask.datasets import load_docstrings
load_docstrings(packages=["tqdm", "pooch"], cache=False)
print(sorted({"numba", "tqdm", "distributed", "matplotlib", "pooch"} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert run.stdout == "[]\n"


def test_vocabulary_is_words():
    corpus = load_docstrings(packages=["joblib", "pooch", "tqdm"], cache=False)
    X, vocabulary = corpus
    assert X.shape[0] > 80
    assert all(
        word.isascii() and word.isalpha() and word.islower() and 3 <= len(word) <= 20 for word in vocabulary
    )
    assert vocabulary.tolist() == sorted(set(vocabulary))
    assert not {"parameters", "returns", "default", "the", "optional"} & set(vocabulary)
    assert {"parallel", "memory", "file", "processes"} <= set(vocabulary)
    assert X.sum(axis=1).min() >= 10
    assert X.sum(axis=0).min() >= 1
    assert X.has_canonical_format
    again = load_docstrings(packages=["joblib", "pooch", "tqdm"], cache=False)
    assert_same(corpus, again)
