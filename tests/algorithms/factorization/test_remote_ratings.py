"""Ratings of Dask and of files: the fit is that of the same ratings in this process, bit for bit."""

from unittest import mock

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.factorization import entries, reading, remote_ratings
from stradask.datasets import ParquetTable, make_ratings
from stradask.errors import CheckpointMismatch, DataError

pd = pytest.importorskip("pandas")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)

CELLS = make_ratings(120, 60, 3, density=0.2, random_state=0)[0].tocoo()
FRAME = pd.DataFrame({"user": [f"u{k:03d}" for k in CELLS.row], "item": CELLS.col * 7, "rating": CELLS.data})
FRAME = FRAME.sample(frac=1, random_state=0).reset_index(drop=True)
NUMBERS = np.column_stack([FRAME.user.str[1:].astype(int), FRAME.item, FRAME.rating])
WEIGHTS = 1e3 * np.random.default_rng(1).random(len(FRAME)) * (np.arange(len(FRAME)) % 5 > 0)


def model(**options):
    return sd.MatrixFactorization(4, **({"solver": "als", "max_iter": 4, "random_state": 0} | options))


def equal(found, expected):
    for name in ("user_factors_", "item_factors_", "user_bias_", "item_bias_", "user_ids_", "item_ids_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(found.rating_range_, expected.rating_range_)


@pytest.fixture
def client(address):
    with distributed.Client(address) as client:
        yield client


def written(folder, form):
    """The ratings as files of a folder; what `fit` is given."""
    if form == "parquet":
        for k in range(3):
            FRAME[k::3].to_parquet(folder / f"{k}.parquet", row_group_size=100)
        return folder
    for k in range(3):
        FRAME[k::3].to_csv(folder / f"{k}.csv", index=False)
    return str(folder / "*.csv")


@pytest.mark.parametrize("implicit", [False, True], ids=["ratings", "counts"])
@pytest.mark.parametrize("form", ["frame", "parquet", "text"])
def test_ratings_on_a_cluster_stay_there(client, form, implicit, tmp_path):
    X = dd.from_pandas(FRAME, npartitions=5) if form == "frame" else written(tmp_path, form)
    with mock.patch.object(reading, "read_here", side_effect=AssertionError):
        there = model(solver="auto", implicit=implicit).fit(X)
    assert (there.solver_, there.seen_) == ("als", None)
    here = model(implicit=implicit).fit(FRAME)
    np.testing.assert_array_equal(there.user_factors_, here.user_factors_)
    np.testing.assert_array_equal(there.history_["objective"], here.history_["objective"])


@pytest.mark.parametrize("form", ["frame", "parquet", "text"])
def test_without_a_cluster_they_are_read_here(form, tmp_path):
    X = dd.from_pandas(FRAME, npartitions=5) if form == "frame" else written(tmp_path, form)
    there = model().fit(X)
    equal(there, model().fit(FRAME))
    assert there.seen_.nnz == len(FRAME)
    assert there.recommend(["u003"], n=2).items.shape == (1, 2)


def test_files_and_frames_of_dask_are_scored_and_ranked(tmp_path):
    liked = FRAME.assign(rating=FRAME.rating.abs())
    learnt, held_out = liked[::2], liked[1::2]
    learnt.to_parquet(tmp_path / "learnt.parquet")
    held_out.to_csv(tmp_path / "held.csv", index=False)
    ratings, counts = model().fit(learnt), model(implicit=True).fit(learnt)
    dask = dd.from_pandas(held_out, npartitions=3)
    for own in (ratings, counts, sd.EASE().fit(learnt)):
        expected = own.score(held_out)
        assert own.score(str(tmp_path / "held.csv")) == pytest.approx(expected)
        assert own.score(dask) == pytest.approx(expected)
    expected = sd.evaluate_ranking(counts, held_out)
    counts.seen_ = None  # as after a fit on a cluster
    given = {"held_out": str(tmp_path / "held.csv"), "observed": tmp_path / "learnt.parquet"}
    assert sd.evaluate_ranking(counts, **given) == expected
    with pytest.raises(DataError, match="none of its 200 ratings is of a user and an item of the fit"):
        sd.evaluate_ranking(counts, held_out[:200].assign(user="nobody"))
    with pytest.raises(DataError, match="the model's ids are text, for instance 'u000'"):
        ratings.score(NUMBERS[:, :2], NUMBERS[:, 2])
    with pytest.raises(DataError, match="the item '7' was not in fit: the model's ids are whole numbers"):
        ratings.predict([["u000", "7"]])


def test_arrays_with_weights(client):
    lazy, w = da.from_array(NUMBERS, (100, 3)), da.from_array(WEIGHTS, 300)
    expected = model().fit(NUMBERS[:, :2], NUMBERS[:, 2], WEIGHTS)
    equal(model().fit(lazy[:, :2], lazy[:, 2], w), expected)
    equal(model().fit(lazy, sample_weight=w), expected)
    frame = dd.from_pandas(FRAME.assign(w=WEIGHTS), npartitions=4)
    equal(
        model().fit(frame[["user", "item"]], frame["rating"], frame["w"]),
        model().fit(FRAME[["user", "item"]], FRAME.rating, WEIGHTS),
    )


def test_weights_beside_an_empty_partition(client):
    frame = FRAME.assign(w=WEIGHTS).sort_values("user").reset_index(drop=True)
    kept, lazy = (X[X.user > "u060"] for X in (frame, dd.from_pandas(frame, npartitions=3)))
    assert lazy.map_partitions(len).compute().tolist()[0] == 0
    expected = model().fit(kept[["user", "item"]], kept.rating, kept.w)
    equal(model().fit(lazy[["user", "item"]], lazy.rating, lazy.w), expected)


def test_weights_and_other_names_of_columns(client, tmp_path):
    named = FRAME.rename(columns={"user": "who", "item": "what", "rating": "stars"}).assign(w=WEIGHTS)
    named.to_parquet(tmp_path / "a.parquet", row_group_size=100)
    table = ParquetTable(tmp_path, columns=["who", "what", "stars"])
    expected = model().fit(FRAME[["user", "item"]], FRAME.rating, WEIGHTS)
    equal(model().fit(table, sample_weight="w"), expected)
    equal(model().fit(ParquetTable(tmp_path, columns=["who", "what"]), "stars", "w"), expected)
    with pytest.raises(DataError, match="no column is named user, user_id or userId among"):
        model().fit(tmp_path)


def test_an_address_and_features(address):
    ids = np.arange(65) * 7  # some without ratings
    features = ids, np.random.default_rng(0).normal(size=(65, 3))
    there = model(engine=address).fit(dd.from_pandas(FRAME, npartitions=3), item_features=features)
    equal(there, model().fit(FRAME, item_features=features))
    assert there.item_factors_.shape == (65, 4)


def test_penalties_from_a_sample_of_users(client, monkeypatch):
    monkeypatch.setattr(remote_ratings, "_SAMPLE", 700)
    taken = []
    monkeypatch.setattr(
        remote_ratings.SampledUsers, "of", classmethod(lambda cls, *args: taken.append(args) or args[0])
    )
    lazy = dd.from_pandas(FRAME, npartitions=5)
    there = model().fit(lazy)
    (sample, rows_a_rating), *_ = taken
    assert 600 < len(sample) <= 700
    assert rows_a_rating == (120 + 60) / len(FRAME)
    whole = model().fit(FRAME)
    np.testing.assert_allclose(there.bias_reg_, whole.bias_reg_, rtol=0.7)
    given = {"reg": 0.05, "bias_reg": 4.0, "reg_offset": 2.0}  # then none is needed
    taken.clear()
    equal(model(**given).fit(lazy), model(**given).fit(FRAME))
    assert not taken
    monkeypatch.undo()
    monkeypatch.setattr(remote_ratings, "_SAMPLE", 700)
    monkeypatch.setattr(entries, "SAMPLE", 700)  # ratings of this process are sampled alike
    equal(model().fit(lazy), model().fit(FRAME))


# Using the model ------------------------------------------------------------------------------------------


def test_the_model_predicts_folds_in_and_says_what_it_does_not_hold(client, tmp_path):
    there, here = model().fit(dd.from_pandas(FRAME, npartitions=5)), model().fit(FRAME)
    there.save(tmp_path / "m.npz")
    pairs = FRAME[["user", "item"]][:9]
    R = sparse.coo_array((CELLS.data, (CELLS.row, CELLS.col)), shape=(120, 60)).tocsr()[[3, 5]]
    for fitted in (there, sd.load(tmp_path / "m.npz")):
        np.testing.assert_array_equal(fitted.predict(pairs), here.predict(pairs))
        np.testing.assert_array_equal(fitted.recommend(R, n=3).items, here.recommend(R, n=3).items)
        np.testing.assert_array_equal(fitted.similar_items([7]).items, here.similar_items([7]).items)
        for asked in (lambda m: m.recommend(["u003"]), lambda m: m.partial_fit(FRAME[:9])):
            with pytest.raises(DataError, match="stayed on a cluster: give the ratings of the users"):
                asked(fitted)


def test_new_ratings_of_dask_come_here(client):
    old, new = FRAME[: len(FRAME) // 2], FRAME[len(FRAME) // 2 :]
    expected = model().fit(old).partial_fit(new)
    equal(model().fit(old).partial_fit(dd.from_pandas(new, npartitions=3)), expected)


def test_a_checkpoint_is_of_these_ratings(client, tmp_path):
    lazy, options = dd.from_pandas(FRAME, npartitions=4), {"max_iter": 10, "checkpoint": tmp_path / "c"}
    model(**options).fit(lazy, callback=lambda info: info.round == 6)
    equal(model(**options).fit(lazy), model(max_iter=10).fit(FRAME))
    with pytest.raises(CheckpointMismatch):
        model(**options).fit(dd.from_pandas(FRAME.assign(rating=FRAME.rating + 1), npartitions=4))


# Bad input ------------------------------------------------------------------------------------------------


def lazy_of(frame=FRAME, n=3):
    return dd.from_pandas(frame, npartitions=n)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"solver": "sgd"}, "solver='sgd' with loss='squared' needs the ratings in this process"),
        ({"implicit": True, "loss": "bpr"}, r"with loss='bpr' needs the ratings.* and loss='squared'"),
        ({"early_stopping": True}, "early_stopping=True holds ratings out in this process"),
    ],
)
def test_what_needs_the_ratings_is_refused_on_a_cluster(client, options, said):
    with pytest.raises(DataError, match=said):
        model(**({"solver": "auto"} | options)).fit(lazy_of())


@pytest.mark.parametrize("where", ["cluster", "here"])
@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (
            lambda: lazy_of(FRAME.assign(rating=FRAME.rating.where(FRAME.index != 400))),
            None,
            "in partition . of X",
        ),
        (
            lambda: lazy_of(pd.concat([FRAME, FRAME[:1]])),
            None,
            f"several ratings of one item by one user, the first for user '{FRAME.user[0]}'",
        ),
        (lambda: lazy_of(FRAME[["item", "user", "rating"]]), None, "users, items and ratings in this order"),
        (lambda: da.from_array(NUMBERS, 100), lambda: NUMBERS[:, 2], "X has 3 columns|must be of Dask"),
        (lambda: da.from_array(NUMBERS[:, :2], 100), None, "X has 2 columns: give users, items and ratings"),
        (lambda: da.from_array(NUMBERS[:, :2], (100, 2)), lambda: NUMBERS[:, 2], "y must be of Dask as X is"),
        (lambda: da.from_array(NUMBERS + 0.5, 100), None, "must be whole numbers or text"),
        (lambda: lazy_of(FRAME[FRAME.rating > 99], 1), None, "X holds no rating"),
        (lambda: da.ones(9), None, "of Dask's collections MatrixFactorization takes frames"),
        (lambda: "none-*.csv", None, "matches no file"),
        (lambda: "none.parquet", None, "there is no such file"),
    ],
)
def test_bad_ratings_are_named(where, X, y, said, request):
    if where == "cluster":
        request.getfixturevalue("client")
    with pytest.raises(DataError, match=said):
        model().fit(X(), None if y is None else y())


def test_ids_of_two_kinds_in_pieces(client):
    frame = dd.concat([lazy_of(FRAME, 1), lazy_of(FRAME.assign(user=FRAME.user.str[1:].astype(int)), 1)])
    with pytest.raises(DataError, match="ids of users are text in some pieces and whole numbers in others"):
        model().fit(dd.from_delayed(frame.to_delayed(), meta=FRAME, verify_meta=False))


# Losses, and what this process gets ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.cluster
def test_a_worker_that_dies_costs_a_round_and_no_bit(tmp_path):
    folder = written(tmp_path, "parquet")
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        killed = []

        def kill(info):
            if info.round == 2 and not killed:
                killed.append(next(iter(cluster.workers.values())))
                killed[0].process.process._process.kill()

        found = model(max_iter=8).fit(folder, callback=kill)
    assert killed
    equal(found, model(max_iter=8).fit(FRAME))


@pytest.mark.slow
@pytest.mark.cluster
def test_this_process_gets_nothing_that_grows_with_the_ratings():
    """Bytes through this process, the scheduler's too: 300,000 and 3 million ratings of the same users."""
    from tornado.iostream import IOStream

    passed, read, write = [0], IOStream.read_from_fd, IOStream.write_to_fd

    def counted(method):
        def call(stream, data):
            n = method(stream, data)
            passed[0] += n or 0
            return n

        return call

    def some(part, n):
        rng = np.random.default_rng(part)
        cells = rng.choice(2_000 * 250, n, replace=False)  # items of a part are its own
        users, items = cells // 250, cells % 250 + 250 * part
        return pd.DataFrame({"user": users, "item": items, "rating": rng.integers(1, 6, n).astype(float)})

    meta, counts = some(0, 2), {}
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    given = {"bias_reg": 4.0, "reg_offset": 2.0}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        for n in (30_000, 30_000, 300_000):  # the first compiles
            lazy = dd.from_map(some, range(10), n=n, meta=meta)
            before = passed[0]
            with (
                mock.patch.object(IOStream, "read_from_fd", counted(read)),
                mock.patch.object(IOStream, "write_to_fd", counted(write)),
            ):
                model(max_iter=3, **given).fit(lazy)
            counts[n] = passed[0] - before
    assert counts[300_000] < counts[30_000] + 3_000_000, counts  # a byte a rating; they have 24
