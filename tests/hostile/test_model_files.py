"""Model files and posteriors with sound checksums and unsound content.

What is loaded either makes sense or is refused by an error of ours; nothing that compiled code reads may lie
out of bounds, nothing is executed, and no more memory is taken than the file has bytes.
"""

import io
import os
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from unsound import other_files, some

import stradask as sd
from stradask.errors import CheckpointMismatch, ModelFileError, StradaskError
from stradask.scheduler.stores import store

N, D = 30, 5
_RNG = np.random.default_rng(0)
COUNTS = _RNG.integers(4, size=(N, D))
COUNTS[:, 0] += 1
X = COUNTS.astype(np.float64)
Y = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]) + _RNG.standard_normal(N)
GROUPS = np.arange(N) % 3
R = sparse.csr_array(X)
DRAWS = {"n_samples": 20, "n_warmup": 20, "n_chains": 2, "random_state": 0}


def used(*methods):
    """Calls of methods that take X."""
    return [lambda model, method=method: getattr(model, method)(X) for method in methods]


MODELS = {
    "lda": (
        lambda: sd.LatentDirichletAllocation(3, max_iter=4, random_state=0).fit(
            COUNTS, vocabulary=list("abcde")
        ),
        [
            *used("transform", "perplexity"),
            lambda m: m.topics(3),
            lambda m: m.coherence(COUNTS),
            lambda m: m.representative_documents(),
            lambda m: m.partial_fit(COUNTS),
        ],
    ),
    "hdp": (
        lambda: sd.HDPTopicModel(12, max_iter=12, random_state=0).fit(COUNTS),
        [*used("transform", "perplexity"), lambda m: m.topics(3), lambda m: m.representative_documents()],
    ),
    "keyatm": (
        lambda: sd.KeyATM(3, max_iter=12, random_state=0).fit(COUNTS, seed_words={0: [1], 2: [3]}),
        [*used("transform", "perplexity"), lambda m: m.topics(3)],
    ),
    "slda": (
        lambda: sd.SupervisedLDA(3, response="class", max_iter=12, random_state=0).fit(
            COUNTS, np.arange(N) % 3
        ),
        [*used("transform", "perplexity", "predict", "predict_proba"), lambda m: m.topics(3)],
    ),
    "gsdmm": (
        lambda: sd.GSDMM(3, max_iter=5, random_state=0).fit(COUNTS),
        [
            *used("transform", "perplexity", "predict"),
            lambda m: m.topics(3),
            lambda m: m.representative_documents(),
        ],
    ),
    "biterm": (
        lambda: sd.BitermTopicModel(3, max_iter=5, random_state=0).fit(COUNTS),
        [*used("transform", "perplexity", "predict"), lambda m: m.topics(3)],
    ),
    "dynamic": (
        lambda: sd.DynamicTopicModel(3, max_iter=6, random_state=0).fit(COUNTS, slices=np.arange(N) % 4),
        [
            *used("transform", "perplexity"),
            lambda m: m.topics(3),
            lambda m: m.at(2).topics(3),
            lambda m: m.over_time(1),
            lambda m: m.shares_over_time(),
        ],
    ),
    "lda with draws": (
        lambda: sd.LatentDirichletAllocation(3, max_iter=10, n_draws=3, random_state=0).fit(COUNTS),
        [
            *used("transform"),
            lambda m: m.topic_word_interval(),
            lambda m: m.doc_topic_interval(),
        ],
    ),
    "dmr": (
        lambda: sd.DMRTopicModel(3, max_iter=40, random_state=0).fit(
            COUNTS, covariates={"x": X[:, 0], "g": list("ab" * N)[:N]}
        ),
        [
            *used("transform", "perplexity"),
            lambda m: m.topics(3),
            lambda m: m.effects(0.3),
            lambda m: m.transform(COUNTS[:2], covariates={"x": [0.0, 1.0], "g": ["a", "b"]}),
            lambda m: m.representative_documents(),
        ],
    ),
    "lasso": (lambda: sd.Lasso(0.1).fit(X, Y), used("predict")),
    "elastic net path": (lambda: sd.ElasticNetCV(cv=3, alphas=4).fit(X, Y), used("predict")),
    "sparse logistic": (
        lambda: sd.SparseLogisticRegression(0.05, warm_start=True).fit(X, Y > 0),
        [*used("predict", "predict_proba"), lambda m: m.fit(X, Y > 0)],
    ),
    "logistic": (
        lambda: sd.LogisticRegression(warm_start=True).fit(X, np.digitize(Y, [-1, 1])),
        [*used("predict", "predict_proba"), lambda m: m.fit(X, np.digitize(Y, [-1, 1]))],
    ),
    "ridge": (lambda: sd.Ridge().fit(X, Y), used("predict")),
    "poisson": (lambda: sd.PoissonRegressor().fit(X, np.abs(Y).round()), used("predict")),
    "mlp": (
        lambda: sd.MLPClassifier((4,), max_iter=3, random_state=0).fit(X, Y > 0),
        used("predict", "predict_proba"),
    ),
    "bayesian": (
        lambda: sd.BayesianLinearRegression(**DRAWS).fit(X, Y, groups=GROUPS),
        [lambda m: m.predict(X, return_std=True, groups=GROUPS), lambda m: m.posterior_.summary()],
    ),
    "ease": (
        lambda: sd.EASE().fit(R),
        [
            lambda m: m.recommend(np.arange(3)),
            lambda m: m.similar_items([0, D - 1]),
            lambda m: m.explain(0, 1),
        ],
    ),
    "neighbours": (
        lambda: sd.ItemKNN(2).fit(R),
        [lambda m: m.recommend(R), lambda m: m.similar_items([0, D - 1]), lambda m: m.predict([[0, 1]])],
    ),
    "factors": (
        lambda: sd.MatrixFactorization(2, max_iter=2, random_state=0).fit(R),
        [
            lambda m: m.predict(np.array([[0, 0], [N - 1, D - 1]])),
            lambda m: m.recommend(np.arange(3)),
            lambda m: m.similar_items([0, D - 1]),
            lambda m: m.transform(R),
            lambda m: m.explain(R[[0]], [1]),
            lambda m: m.partial_fit(R),
        ],
    ),
}

# Unsound content ------------------------------------------------------------------------------------------


def made(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few rounds and draws
        return MODELS[name][0]()


def check_models(name, share, folder):
    _, uses = MODELS[name]
    made(name).save(folder / "sound")
    arrays, header = store.read_npz(folder / "sound")
    cases = some(other_files(arrays, header), share, len(name))
    refused = 0
    for what, others, other_header in cases:
        store.write_npz(folder / "changed", others, other_header)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = sd.load(folder / "changed")
            except ModelFileError:
                refused += 1
                continue
            for use in uses:
                try:
                    use(model)
                except (StradaskError, NotFittedError, ValueError, TypeError):
                    continue
                except AttributeError as error:
                    error.add_note(what)
                    if "not fitted" not in str(error):
                        raise
                except Exception as error:
                    error.add_note(what)
                    raise
    assert refused > len(cases) // 4
    return len(cases)


@pytest.mark.parametrize("name", MODELS)
def test_a_changed_model_is_refused_or_can_be_used(tmp_path, quick_disk, name):
    assert check_models(name, 24, tmp_path) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_changed_model_is_refused_or_can_be_used_at_length(tmp_path, quick_disk, name):
    assert check_models(name, 1, tmp_path) > 300


def test_parts_of_a_sparse_matrix_that_overflow_are_refused(tmp_path):
    made("factors").save(tmp_path / "sound")
    arrays, header = store.read_npz(tmp_path / "sound")
    parts = header["attributes"]["seen_"]
    ends = arrays[parts["indptr"]]
    for wrong in (-ends, np.append(ends[:-1], -1), np.append(ends[:-1], ends[-1] - 1), ends[:0], ends * 0):
        store.write_npz(tmp_path / "changed", arrays | {parts["indptr"]: wrong}, header)
        with pytest.raises(ModelFileError, match="seen_ is damaged or missing"):
            sd.load(tmp_path / "changed")


# Kinds of files -------------------------------------------------------------------------------------------


def test_one_kind_of_file_is_not_taken_for_another(tmp_path):
    sd.Lasso(0.1).fit(X, Y).save(tmp_path / "model")
    made("bayesian").posterior_.save(tmp_path / "posterior")
    sd.LatentDirichletAllocation(3, max_iter=2, checkpoint=tmp_path / "c", random_state=0).fit(COUNTS)
    state = max((tmp_path / "c").glob("round-*.npz"))
    with pytest.raises(ModelFileError, match="not a model"):
        sd.load(state)
    for path in (tmp_path / "model", state):
        with pytest.raises(ModelFileError, match="not a posterior"):
            sd.Posterior.load(path)
    for other in ("model", "posterior"):
        state.write_bytes((tmp_path / other).read_bytes())
        with pytest.raises(ModelFileError, match="belongs to another fit"):
            sd.LatentDirichletAllocation(3, max_iter=4, checkpoint=tmp_path / "c", random_state=0).fit(COUNTS)
    with pytest.raises((CheckpointMismatch, ModelFileError)):
        sd.MatrixFactorization(2, max_iter=4, checkpoint=tmp_path / "c", random_state=0).fit(R)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_under_the_name_of_another_class_is_refused_or_can_be_used(tmp_path, quick_disk, name):
    made(name).save(tmp_path / "sound")
    arrays, header = store.read_npz(tmp_path / "sound")
    for other in (n for n in sd.__all__ if n != header["class"]):
        store.write_npz(tmp_path / "changed", arrays, header | {"class": other})
        try:
            model = sd.load(tmp_path / "changed")
        except ModelFileError:
            continue
        if hasattr(model, "predict"):  # Lasso and ElasticNet, say, whose attributes are the same
            assert model.predict(X).shape[0] == N


# Memory, and names of members -------------------------------------------------------------------------------


def zipped(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def npy(array, shape=None):
    """Bytes of an npy file, which may state another shape than it has."""
    out = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(out, header | ({"shape": shape} if shape else {}))
    return out.getvalue() + array.tobytes()


HEADER = npy(np.frombuffer(b"{}", np.uint8))


@pytest.mark.parametrize("load", [sd.load, sd.Posterior.load, store.read_npz])
def test_nothing_unfolds(tmp_path, load):
    path = tmp_path / "bomb"
    zipped(path, {"header.npy": HEADER, "a.npy": npy(np.zeros(10**7))}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 10**5
    with pytest.raises(ModelFileError, match="compressed, as those of stradask never are"):
        load(path)
    for shape in [(10**15,), (10**9, 10**9), (2,), (0,), (-1,), (10**15, 0)]:
        zipped(path, {"header.npy": HEADER, "a.npy": npy(np.zeros(3), shape)})
        with pytest.raises(ModelFileError, match=r"bomb is truncated, damaged"):
            load(path)


def test_members_that_are_there_twice_are_refused(tmp_path):
    path = tmp_path / "overlapping"
    zipped(path, {"header.npy": HEADER, "a.npy": npy(np.zeros(10**4))})
    content = path.read_bytes()
    end = content.rindex(b"PK\x05\x06")
    directory = content.index(b"PK\x01\x02")
    entry = content.index(b"PK\x01\x02", directory + 4)
    many = b"".join(content[entry:end].replace(b"a.npy", b"%c.npy" % c) for c in range(98, 123))
    tail = bytearray(content[end:])
    tail[8:10] = tail[10:12] = (2 + 25).to_bytes(2, "little")
    tail[12:16] = (end - directory + len(many)).to_bytes(4, "little")
    path.write_bytes(content[:end] + many + bytes(tail))
    with pytest.raises(ModelFileError, match="overlap"):
        store.read_npz(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zipped(path, {"header.npy": HEADER})
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("header.npy", HEADER)
    with pytest.raises(ModelFileError, match="overlap"):
        store.read_npz(path)


@pytest.mark.parametrize(
    "name", ["../outside.npy", "/tmp/outside.npy", "a/../../outside.npy", "C:\\outside.npy"]
)
def test_names_that_point_elsewhere_write_nothing(tmp_path, name):
    (tmp_path / "inside").mkdir()
    path = tmp_path / "inside" / "file"
    zipped(path, {"header.npy": HEADER, name: npy(np.zeros(3))})
    before = sorted(tmp_path.rglob("*"))
    store.read_npz(path)
    for load in (sd.load, sd.Posterior.load):
        with pytest.raises(ModelFileError):
            load(path)
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/tmp/outside.npy").exists()


class Payload:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("load", [sd.load, sd.Posterior.load, store.read_npz])
def test_no_pickle_is_executed(tmp_path, load):
    trap = tmp_path / "executed"
    pickled = io.BytesIO()
    np.save(pickled, np.array([Payload(trap)], dtype=object), allow_pickle=True)
    path = tmp_path / "file"
    for content in (pickled.getvalue(), pickle.dumps(Payload(trap))):
        path.write_bytes(content)
        with pytest.raises(ModelFileError):
            load(path)
        for name in ("header.npy", "a.npy", "a.pkl"):
            zipped(path, {"header.npy": HEADER} | {name: content})
            with pytest.raises(ModelFileError):
                load(path)
    assert not trap.exists()
