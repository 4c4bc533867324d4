"""Shards that are read where they are worked on: the same draws as in memory, re-read, and refusals."""

import os
import signal
import warnings

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.bayes.models.groups import cut_groups
from stradask.algorithms.bayes.models.model import Prior, regression
from stradask.algorithms.bayes.shards.rows import cut_rows
from stradask.algorithms.bayes.shards.source_checks import check_shards, only_checksum
from stradask.algorithms.bayes.shards.source_fit import inspect_shards, joined, reduced_rows
from stradask.algorithms.bayes.shards.sources import Source, find_sources
from stradask.algorithms.inputs.pieces import checksum
from stradask.errors import DataError

OPTIONS = {"n_samples": 100, "n_warmup": 100, "n_chains": 2, "random_state": 3}
SEED = int(np.random.RandomState(3).randint(2**31))  # what the fits below deal their rows by
da = pytest.importorskip("dask.array")


def logistic(n=900):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return X, (rng.random(n) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)


def cut(y, n_shards=3):
    return cut_rows(len(y), n_shards, SEED, np.where(y == y.max(), 1.0, -1.0))


@pytest.fixture
def shards(tmp_path):
    """Three npz files of a logistic regression, and the model fitted to the same shards in memory."""
    X, y = logistic()
    paths = []
    for m, rows in enumerate(cut(y)):
        paths.append(tmp_path / f"{m}.npz")
        np.savez(paths[-1], X=X[rows], y=y[rows])
    return paths, sd.BayesianLogisticRegression(n_shards=3, **OPTIONS).fit(X, y)


def test_files_give_the_draws_of_memory(shards, tmp_path):
    paths, memory = shards
    far = sd.BayesianLogisticRegression(n_shards="auto", n_jobs=2, **OPTIONS).fit(paths)
    np.testing.assert_array_equal(far.posterior_.draws, memory.posterior_.draws)
    np.testing.assert_array_equal(far.posterior_.shard_draws, memory.posterior_.shard_draws)
    assert (far.n_shards_, far.n_features_in_, far.classes_.tolist()) == (3, 3, [0, 1])
    X, y = logistic()
    np.testing.assert_array_equal(far.predict_proba(X[:5]), memory.predict_proba(X[:5]))
    pairs = []
    for m, rows in enumerate(cut(y)):
        pairs.append((tmp_path / f"X{m}.npy", str(tmp_path / f"y{m}.npy")))
        np.save(pairs[-1][0], X[rows])
        np.save(pairs[-1][1], y[rows])
    kept = sd.BayesianLogisticRegression(n_shards=3, checkpoint=tmp_path / "ckpt", **OPTIONS)
    np.testing.assert_array_equal(kept.fit(pairs).posterior_.draws, memory.posterior_.draws)
    before = sorted(os.listdir(tmp_path / "ckpt"))
    np.testing.assert_array_equal(kept.fit(paths).posterior_.draws, memory.posterior_.draws)
    assert sorted(os.listdir(tmp_path / "ckpt")) == before  # the same rows, whatever holds them


def test_one_file_is_all_the_data(shards):
    paths, _ = shards
    with np.load(paths[0]) as file:
        there = sd.BayesianLogisticRegression(**OPTIONS).fit(file["X"], file["y"])
    found = sd.BayesianLogisticRegression(**OPTIONS).fit(paths[:1])
    np.testing.assert_array_equal(found.posterior_.draws, there.posterior_.draws)


def svmlight_files(tmp_path, X, y, parts, zero_based=True):
    from sklearn.datasets import dump_svmlight_file

    paths = [str(tmp_path / f"{m}.svm") for m in range(len(parts))]
    for path, rows in zip(paths, parts, strict=True):
        dump_svmlight_file(X[rows], y[rows], path, zero_based=zero_based)
    return paths


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight_files_may_lack_the_first_and_the_last_columns(tmp_path, zero_based):
    """From where columns are counted, and how many there are, is told by all files together."""
    X, y = logistic()
    X, parts = np.round(X, 6), cut(y)  # to what the file says
    X[parts[1], 2], X[parts[2], 0] = 0.0, 0.0
    paths = svmlight_files(tmp_path, X, y, parts, zero_based)
    memory = sd.BayesianLogisticRegression(prior_scale=[1.0, 2.0, 3.0], n_shards=3, **OPTIONS).fit(X, y)
    far = sd.BayesianLogisticRegression(prior_scale=[1.0, 2.0, 3.0], n_shards=3, **OPTIONS).fit(paths)
    np.testing.assert_array_equal(far.posterior_.draws, memory.posterior_.draws)
    seen = [
        source.take() for source in check_shards(find_sources(paths), only_checksum, engine="local", n_jobs=1)
    ]
    for (there, labels), rows in zip(seen, parts, strict=True):
        np.testing.assert_array_equal(there.toarray(), X[rows])
        np.testing.assert_array_equal(labels, y[rows])


def test_columns_that_a_file_lacks_are_columns_all_the_same(tmp_path):
    X, y = logistic(200)
    parts = [np.arange(100), np.arange(100, 200)]
    X[parts[1], 2] = 0.0
    paths = svmlight_files(tmp_path, X, y + X[:, 1], parts)
    linear = sd.BayesianLinearRegression(n_shards=2, **OPTIONS)
    found = inspect_shards(linear, find_sources(paths), engine="local", n_jobs=1)
    np.testing.assert_allclose(joined(found.moments)[1][:3], X.std(axis=0))
    with pytest.raises(DataError, match=r"shard 1 .*x0, x1, x2 depend on each other, whose prior is flat"):
        sd.BayesianLogisticRegression(prior_scale=np.inf, n_shards=2, **OPTIONS).fit(
            svmlight_files(tmp_path, X, y, parts)
        )


def test_blocks_and_delayed_give_the_draws_of_memory(shards):
    import dask
    from distributed import Client

    _, memory = shards
    X, y = logistic()
    order = np.concatenate(cut(y))
    blocks = da.from_array(X[order], chunks=(300, 2))
    with Client(processes=False, dashboard_address=":0") as client:
        model = sd.BayesianLogisticRegression(n_shards="auto", engine="dask", **OPTIONS)
        for beside in (da.from_array(y[order], chunks=450), y[order]):
            draws = model.fit(blocks, beside).posterior_.draws
            np.testing.assert_array_equal(draws, memory.posterior_.draws)
        delayed = [dask.delayed(lambda rows: (X[rows], y[rows]), pure=True)(rows) for rows in cut(y)]
        np.testing.assert_array_equal(model.fit(delayed).posterior_.draws, memory.posterior_.draws)
        held = client.persist(blocks)
        with pytest.raises(DataError, match=r"X is held by a cluster, .* before persist\(\)"):
            model.fit(held, y[order])


def test_weights_and_offsets_lie_in_the_files(tmp_path):
    rng = np.random.default_rng(1)
    X, offset = rng.standard_normal((600, 2)), rng.normal(0, 0.3, 600)
    y, weights = rng.poisson(np.exp(0.3 * X[:, 0] + offset)), rng.integers(0, 3, 600).astype(float)
    memory = sd.BayesianPoissonRegression(n_shards=2, **OPTIONS)
    kept = weights > 0  # the rows that are dealt out
    parts = cut_rows(kept.sum(), 2, SEED)
    memory.fit(X, y, sample_weight=weights, offset=offset)
    paths = [tmp_path / "0.npz", tmp_path / "1.npz"]
    for path, rows in zip(paths, parts, strict=True):
        named = {"X": X, "y": y, "sample_weight": weights, "offset": offset}
        np.savez(path, **{name: values[kept][rows] for name, values in named.items()})
    far = sd.BayesianPoissonRegression(n_shards=2, **OPTIONS).fit(paths)
    np.testing.assert_array_equal(far.posterior_.draws, memory.posterior_.draws)


def saved(folder, parts):
    """An npz file of each dict of arrays."""
    paths = [folder / f"part-{m}.npz" for m in range(len(parts))]
    for path, arrays in zip(paths, parts, strict=True):
        np.savez(path, **arrays)
    return paths


def grouped(n=240, n_groups=12):
    rng = np.random.default_rng(4)
    X, numbers = rng.standard_normal((n, 2)), rng.permutation(np.arange(n) % n_groups)
    f = X[:, 0] + rng.standard_normal(n_groups)[numbers]
    labels = np.array([f"town {k}" for k in range(n_groups)])[numbers]
    return {"X": X, "y": (rng.random(n) < 1 / (1 + np.exp(-f))).astype(int), "groups": labels}


def test_groups_lie_in_the_files(tmp_path):
    data = grouped()
    options = OPTIONS | {"combine": "consensus", "sampler": "nuts", "n_samples": 50, "n_warmup": 50}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains
        memory = sd.BayesianLogisticRegression(n_shards=2, **options).fit(**data)
        parts = cut_groups(np.unique(data["groups"], return_inverse=True)[1], 2, SEED)
        paths = saved(tmp_path, [{k: v[rows] for k, v in data.items()} for rows in parts])
        far = sd.BayesianLogisticRegression(n_shards="auto", **options).fit(paths)
    np.testing.assert_array_equal(far.posterior_.draws, memory.posterior_.draws)
    assert far.posterior_.names == memory.posterior_.names
    assert far.groups_.tolist() == memory.groups_.tolist()
    new = {"X": data["X"][:4], "groups": [*data["groups"][:3], "elsewhere"]}
    np.testing.assert_array_equal(far.predict_proba(**new), memory.predict_proba(**new))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda a, b: b["groups"].__setitem__(3, "town 0"),
            r"group town 0 lies in shard 0 \(.*\) and in shard 1 \(.*\): .*put all rows of a group into one",
        ),
        (lambda a, b: b.pop("groups"), r"shard 0 \(.*\) has groups, shard 1 \(.*\) has none"),
        (
            lambda a, b: b.update(groups=np.arange(120) % 6),
            r"groups are text in shard 0 \(.*\), numbers in shard 1",
        ),
        (lambda a, b: b.update(groups=np.full(120, np.nan)), r"shard 1 \(.*\): groups holds nan in row 0"),
        (lambda a, b: b.update(groups=b["groups"][:7]), r"shard 1 \(.*\): groups has the shape \(7,\)"),
    ],
)
def test_groups_that_do_not_fit_together_are_refused(tmp_path, change, said):
    data = grouped()
    order = np.argsort(data["groups"], kind="stable")
    halves = [{k: v[rows] for k, v in data.items()} for rows in (order[:120], order[120:])]
    change(*halves)
    with pytest.raises(DataError, match=said):
        sd.BayesianLogisticRegression(n_shards="auto", **OPTIONS).fit(saved(tmp_path, halves))


def test_groups_of_one_row_in_all_shards_are_refused(tmp_path):
    data = {"X": np.ones((4, 1)), "y": np.arange(4.0) ** 2, "groups": np.arange(4)}
    paths = saved(tmp_path, [{k: v[:2] for k, v in data.items()}, {k: v[2:] for k, v in data.items()}])
    with pytest.raises(DataError, match="groups holds 4 groups for 4 rows"):
        sd.BayesianLinearRegression(intercept_scale=1.0, n_shards=2).fit(paths)
    with pytest.raises(DataError, match=r"shard 0 .*noise='student_t' has not"):
        sd.BayesianLinearRegression("student_t", n_shards=2).fit(paths)


def linear():
    rng = np.random.default_rng(5)
    X, offset = rng.standard_normal((500, 3)) * [1, 30, 0.01] + [0, 1e3, 0], rng.standard_normal(500)
    y = X @ [1.0, 0.2, 50.0] + offset + rng.standard_normal(500)
    return {"X": X, "y": y, "sample_weight": rng.integers(0, 3, 500).astype(float), "offset": offset}


@pytest.mark.parametrize("prior", ["normal", "horseshoe"])
def test_normal_regressions_are_merged_exactly(tmp_path, prior):
    data = linear()
    # Shards of unlike sizes, one smaller than a row for each column, and unlike in themselves.
    order = np.argsort(data["y"])
    bounds = [(0, 3), (3, 200), (200, 500)]
    parts = [{k: v[order[a:b]] for k, v in data.items()} for a, b in bounds]
    options = (
        OPTIONS | {"sampler": "nuts", "n_samples": 20, "n_warmup": 20} if prior == "horseshoe" else OPTIONS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains
        far = sd.BayesianLinearRegression(prior=prior, n_shards="auto", **options).fit(saved(tmp_path, parts))
        memory = sd.BayesianLinearRegression(prior=prior, **options).fit(**data)
    assert far.n_shards_ == 1
    if prior == "normal":  # a tree of NUTS makes of a last bit another draw
        ours, theirs = far.posterior_.draws, memory.posterior_.draws
        np.testing.assert_allclose((ours - theirs) / theirs.std(axis=0), 0, atol=1e-5)


def test_reduced_rows_have_the_likelihood_of_all():
    data = linear()
    X, y, weights = data["X"], data["y"], data["sample_weight"]
    kept = weights > 0
    prior = Prior(scale=10.0)
    whole = regression(
        "normal", X[kept], y[kept], weights=weights[kept], offsets=data["offset"][kept], prior=prior
    )
    halves = [
        reduced_rows(X[kept][rows], y[kept][rows], weights[kept][rows], data["offset"][kept][rows])
        for rows in (slice(2), slice(2, None))
    ]
    rows = [np.concatenate(part) for part in zip(*halves, strict=True)]
    assert len(rows[1]) == 2 + 4
    merged = regression("normal", rows[0], rows[1], weights=rows[2], prior=prior)
    Q = np.random.default_rng(0).standard_normal((20, 4)) / [10, 100, 0.1, 1] + whole.start
    for ours, theirs in zip(merged.logp_grads(Q), whole.logp_grads(Q), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    np.testing.assert_allclose(merged.start, whole.start, rtol=1e-8)


@pytest.mark.filterwarnings("ignore:.* ESS::")  # of few draws, as the table says
def test_merged_shards_may_leave_a_direction_to_each_other(tmp_path):
    rng = np.random.default_rng(6)
    X = np.column_stack([np.repeat([1.0, 0.0], 50), rng.standard_normal(100)])  # constant in each shard
    y = X @ [2.0, 1.0] + rng.standard_normal(100)
    halves = [{"X": X[rows], "y": y[rows]} for rows in (slice(50), slice(50, None))]
    paths = saved(tmp_path, halves)
    flat = {"prior_scale": np.inf, "n_shards": 2, **OPTIONS}
    model = sd.BayesianLinearRegression(**flat).fit(paths)
    exact = np.linalg.lstsq(np.column_stack([X, np.ones(100)]), y, rcond=None)[0]
    np.testing.assert_allclose(model.coef_, exact[:2], atol=0.1)
    with pytest.raises(
        DataError, match=r"shard 0 \(.*\): this shard of 2: columns among x0, x1, the intercept"
    ):
        sd.BayesianLinearRegression(combine="exact", **flat).fit(paths)
    np.savez(paths[1], X=X[:50], y=y[:50])  # now in both
    with pytest.raises(DataError, match="columns among x0, x1, the intercept depend on each other"):
        sd.BayesianLinearRegression(**flat).fit(paths)
    for path in paths:
        np.savez(path, X=X[:50], y=X[:50, 1])
    with pytest.raises(DataError, match="y is a linear function of X without noise"):
        sd.BayesianLinearRegression(n_shards=2, **OPTIONS).fit(paths)


def test_priors_that_go_by_the_data_go_by_all_shards(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 2)) * [1.0, 100.0] + [0.0, 1e4]
    y = X @ [1.0, 0.02] + rng.standard_normal(400)
    y[:200] += 3  # so that the files differ
    paths = [tmp_path / "0.npz", tmp_path / "1.npz"]
    for path, rows in zip(paths, (slice(200), slice(200, None)), strict=True):
        np.savez(path, X=X[rows], y=y[rows])
    seen = []

    class Watched(sd.BayesianLinearRegression):
        def _prior(self, scaling, size):
            seen.append(super()._prior(scaling, size))
            return seen[-1]

        def _draw(self, *args):
            raise InterruptedError

    for given in ((paths,), (X, y)):
        with pytest.raises(InterruptedError):
            Watched(n_shards=2, **OPTIONS).fit(*given)
    whole = seen[-1]
    np.testing.assert_allclose(seen[-2].scale, whole.scale, rtol=1e-12)
    np.testing.assert_allclose(seen[-2].own_scale, whole.own_scale, rtol=1e-12)
    assert whole.scale[0] == pytest.approx(2.5 * y.std())


def bad(paths, m, **arrays):
    with np.load(paths[m]) as file:
        np.savez(paths[m], **{name: file[name] for name in file.files} | arrays)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda p: bad(p, 1, X=np.full((300, 3), np.nan)),
            r"shard 1 \(.*1.npz\): X contains NaN in row 0, column 0",
        ),
        (lambda p: bad(p, 2, y=np.arange(300) % 2 + 1), r"shard 2 .* classes \[1, 2\], .* \[0, 1, 2\]"),
        (lambda p: bad(p, 1, X=np.ones((300, 2))), r"shard 1 \(.*\) has 2 columns, shard 0 \(.*\) 3"),
        (
            lambda p: bad(p, 1, X=np.ones((300, 3), np.float32)),
            r"shard 1 .* is of float32, shard 0 .* float64",
        ),
        (lambda p: bad(p, 1, y=np.arange(7) % 2), r"shard 1 \(.*\): .*7"),
        (
            lambda p: np.savez(p[1], X=np.ones((3, 3))),
            r"shard 1 \(.*\) must hold X and y, .* it holds \['X'\]",
        ),
        (lambda p: bad(p, 1, z=np.ones(3)), r"it holds \['X', 'y', 'z'\]"),
        (lambda p: p[1].write_bytes(b"PK no zip"), r"shard 1 \(.*\) cannot be read"),
        (lambda p: p[1].unlink(), "shard 1: there is no file"),
    ],
)
def test_a_wrong_shard_is_named(shards, make, said):
    paths, _ = shards
    make(paths)
    model = sd.BayesianLogisticRegression(n_shards="auto", **OPTIONS)
    with pytest.raises(DataError, match=said):
        model.fit(paths)
    assert not hasattr(model, "n_shards_")


def test_what_cannot_stand_beside_shards_is_refused(shards):
    paths, _ = shards
    model = sd.BayesianLogisticRegression(n_shards=2, **OPTIONS)
    with pytest.raises(DataError, match="n_shards=2, but X is 3 shards: take n_shards='auto' or 3"):
        model.fit(paths)
    with pytest.raises(DataError, match="sample_weight and y cannot go with shards"):
        model.fit(paths, np.ones(900), sample_weight=np.ones(900))
    with pytest.raises(DataError, match="prior='horseshoe'"):
        sd.BayesianLogisticRegression("horseshoe", n_shards="auto").fit(paths)
    bad(paths, 0, X=np.zeros((300, 3)))
    with pytest.raises(DataError, match=r"shard 0 .*whose prior is flat.*or take a smaller n_shards"):
        sd.BayesianLogisticRegression(prior_scale=np.inf, n_shards="auto", **OPTIONS).fit(paths)
    X, y = da.ones((6, 2), chunks=3), np.array([0, 1, 0, 1, 0])
    with pytest.raises(DataError, match="X has 6 rows, y 5"):
        sd.BayesianLogisticRegression(n_shards="auto").fit(X, y)
    with pytest.raises(DataError, match="y is missing: give a vector"):
        sd.BayesianLogisticRegression(n_shards="auto").fit(X)


def test_a_file_that_changed_is_not_read_again(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(4))
    (source,) = find_sources([tmp_path / "x.npy"])
    again = Source(source.spec, 0, checksum=checksum(source.read()))
    np.testing.assert_array_equal(again.take(), np.ones(4))
    np.save(tmp_path / "x.npy", np.array([1.0, 1, 1, 2]))
    with pytest.raises(DataError, match=r"shard 0 \(.*x.npy\) has changed since it was read first"):
        again.read()
    assert checksum(sparse.csr_array((2, 3))) != checksum(sparse.csr_array((2, 4)))


def log_likelihood(q, x):
    return -0.5 * ((x - q[0]) ** 2).sum() * np.exp(-2 * q[1]) - len(x) * q[1]


def log_prior(q):
    return -0.5 * (q[0] ** 2 / 100 + q[1] ** 2)


def test_any_density_reads_its_shards(tmp_path):
    import numba as nb

    x = np.random.default_rng(0).normal(2, 1, 500)
    paths = [tmp_path / f"{m}.npy" for m in range(2)]
    for path, rows in zip(paths, cut_rows(500, 2, SEED), strict=True):
        np.save(path, x[rows])
    functions = nb.njit(log_likelihood), nb.njit(log_prior)
    memory = sd.sample(*functions, x, [1.0, 0.0], n_shards=2, **OPTIONS)
    far = sd.sample(*functions, paths, [1.0, 0.0], n_shards="auto", **OPTIONS)
    np.testing.assert_array_equal(far.draws, memory.draws)
    bad_path = tmp_path / "bad.npy"
    np.save(bad_path, np.array([1.0, np.nan]))
    with pytest.raises(DataError, match=r"shard 1 \(.*bad.npy\): the log density is nan"):
        sd.sample(*functions, [paths[0], bad_path], [1.0, 0.0], n_shards=2, **OPTIONS)
    with pytest.raises(DataError, match="n_shards=1, but data lists 2"):
        sd.sample(*functions, paths, [1.0, 0.0], **OPTIONS)


@pytest.mark.slow
@pytest.mark.cluster
def test_a_killed_worker_is_replaced_by_one_that_reads_again(tmp_path):
    import logging

    import dask
    from distributed import Client, LocalCluster

    x = np.random.default_rng(0).normal(2, 1, 80)
    parts = cut_rows(80, 2, SEED)

    @dask.delayed
    def rows_of(shard):
        when = "after" if (tmp_path / "killed").exists() else "before"
        (tmp_path / f"read-{shard}-{when}-{os.getpid()}").touch()
        return x[parts[shard]]

    calls = []

    def fatal(q, x):
        calls.append(1)
        if len(calls) > 2000 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -0.5 * ((x - q[0]) ** 2).sum() * np.exp(-2 * q[1]) - len(x) * q[1]

    def prior(q):
        return -0.5 * (q[0] ** 2 / 100 + q[1] ** 2)

    options = OPTIONS | {"n_shards": 2, "n_samples": 100, "sampler": "nuts"}
    here = sd.sample(log_likelihood, log_prior, x, [1.0, 0.0], **options)
    settings = {"processes": True, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=2, threads_per_worker=1, **settings) as cluster, Client(cluster):
        far = sd.sample(fatal, prior, [rows_of(0), rows_of(1)], [1.0, 0.0], engine="dask", **options)
    np.testing.assert_array_equal(far.draws, here.draws)
    assert (tmp_path / "killed").exists()
    readers = {path.name.rpartition("-")[2] for path in tmp_path.glob("read-*")}
    assert str(os.getpid()) not in readers  # the client never has the rows
    assert list(tmp_path.glob("read-*-after-*"))  # by whoever took the dead worker's place


@pytest.mark.filterwarnings("ignore:.* ESS::")  # of few draws, as the table says
def test_a_shard_without_weight_is_as_if_it_were_not_there(tmp_path):
    X, y = logistic(600)
    parts = [{"X": X[m::3], "y": y[m::3], "sample_weight": np.ones(200)} for m in range(3)]
    parts[1]["sample_weight"] = np.zeros(200)
    paths = saved(tmp_path, parts)
    model = sd.BayesianLogisticRegression(n_shards=3, sampler="split_hmc", **OPTIONS).fit(paths)
    two = sd.BayesianLogisticRegression(n_shards=2, sampler="split_hmc", **OPTIONS).fit([paths[0], paths[2]])
    assert model.n_shards_ == 2
    np.testing.assert_array_equal(model.posterior_.draws, two.posterior_.draws)
    one = sd.BayesianLogisticRegression(sampler="split_hmc", **OPTIONS)
    kept = one.fit(X[::3], y[::3], np.ones(200)).posterior_.draws
    np.testing.assert_array_equal(one.set_params(n_shards="auto").fit(paths[:2]).posterior_.draws, kept)
    assert one.n_shards_ == 1
    with pytest.raises(DataError, match="sample_weight is zero in every row of all shards"):
        one.fit([paths[1], paths[1]])


def test_weights_of_no_use_are_refused_though_they_are_zero(tmp_path):
    X, y = logistic(60)
    paths = saved(tmp_path, [{"X": X, "y": y}, {"X": X, "y": y, "sample_weight": np.zeros(59)}])
    with pytest.raises(DataError, match=r"shard 1 \(.*part-1.npz\): .*sample_weight"):
        sd.BayesianLogisticRegression(n_shards=2, **OPTIONS).fit(paths)
