"""Fits to Parquet files: columns are encoded where the fit computes; the model keeps the encoding."""

from unittest import mock

import numpy as np
import pytest
from parquet_problems import FEATURES, FRAME, N, make_frame, pd
from sklearn.preprocessing import OneHotEncoder

import stradask as sd
from stradask.datasets import ParquetTable
from stradask.errors import DataError, ModelFileError

pyarrow = pytest.importorskip("pyarrow")
distributed = pytest.importorskip("distributed")
parquet = pytest.importorskip("pyarrow.parquet")


def by_hand(frame, cities=("Köln", "Oslo", "Rome")):
    """The matrix that the files become: in the order of the columns, `zip` as a category."""
    encoder = OneHotEncoder(sparse_output=False, categories=[list(cities)], handle_unknown="ignore")
    zips = OneHotEncoder(sparse_output=False, categories=[[10, 11, 12, 13]])
    columns = [
        encoder.fit_transform(frame[["city"]]),
        frame[["age"]],
        zips.fit_transform(frame[["zip"]]),
        frame[["vip", "rooms"]],
    ]
    return np.hstack([np.asarray(column, float) for column in columns])


def model_of(name):
    return {
        "ridge": (sd.Ridge(tol=1e-10), "paid"),
        "logistic": (sd.LogisticRegression(tol=1e-10), "left"),
        "l1": (sd.LogisticRegression(penalty="l1", C=0.1, tol=1e-10), "left"),
        "poisson": (sd.PoissonRegressor(tol=1e-10), "visits"),
        "glm": (sd.GLM("poisson", alpha=0.01), "visits"),
        "lasso": (sd.Lasso(0.01, tol=1e-9), "paid"),
        "net": (sd.ElasticNet(0.01, tol=1e-9), "paid"),
        "sparse-logistic": (sd.SparseLogisticRegression(0.01, tol=1e-9), "left"),
    }[name]


MODELS = ["ridge", "logistic", "l1", "poisson", "glm", "lasso", "net", "sparse-logistic"]


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", MODELS)
def test_on_threads_it_is_the_fit_to_the_encoded_matrix(files, name, weighted):
    (model, y), (other, _) = model_of(name), model_of(name)
    table = ParquetTable(files, columns=FEATURES, categories=["zip"])
    weight = "weight" if weighted else None
    model.fit(table, y=y, sample_weight=weight)
    other.fit(by_hand(FRAME), FRAME[y].to_numpy(), FRAME["weight"].to_numpy() if weighted else None)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=1e-5)
    assert list(model.vocabulary_) == [
        *(
            "city=Köln",
            "city=Oslo",
            "city=Rome",
            "age",
            "zip=10",
            "zip=11",
            "zip=12",
            "zip=13",
            "vip",
            "rooms",
        )
    ]


@pytest.mark.parametrize("name", MODELS)
def test_on_workers_it_is_the_same(files, name, address):
    (model, y), (other, _) = model_of(name), model_of(name)
    with distributed.Client(address):
        model.fit(ParquetTable(files, columns=FEATURES, categories=["zip"]), y=y)
    other.fit(by_hand(FRAME), FRAME[y].to_numpy())
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-5)


def test_an_address_as_engine(files, address):
    model = sd.Ridge(engine=address).fit(ParquetTable(files, columns=FEATURES, categories=["zip"]), y="paid")
    np.testing.assert_allclose(model.coef_, sd.Ridge().fit(by_hand(FRAME), FRAME.paid).coef_, atol=1e-8)


def test_all_columns_but_the_target_in_the_short_form(store):
    url = store(FRAME[["city", "age", "paid"]], "a.parquet", row_group_size=100)
    model = sd.Ridge().fit(url, y="paid")
    assert list(model.vocabulary_) == ["city=Köln", "city=Oslo", "city=Rome", "age"]
    assert model.predict(FRAME).shape == (N,)


# Encodings ------------------------------------------------------------------------------------------------


def test_hashed_columns_need_no_pass_and_take_new_values(store):
    """One column for each value that is alone in its bucket: the fit is that of categories."""
    url = store(FRAME[["city", "zip", "paid"]], "a.parquet", row_group_size=100)
    model = sd.Ridge(alpha=0.1, tol=1e-10).fit(
        ParquetTable(url, hashed={"city": 4096, "zip": 4096}), y="paid"
    )
    assert model.coef_.shape == (8192,)
    assert np.count_nonzero(model.coef_) == 7
    assert not hasattr(model, "vocabulary_")
    dummies = pd.get_dummies(FRAME[["city", "zip"]].astype(str)).to_numpy(float)
    other = sd.Ridge(alpha=0.1, tol=1e-10).fit(dummies, FRAME.paid)
    np.testing.assert_allclose(model.predict(FRAME), other.predict(dummies), atol=1e-8)
    new = pd.DataFrame({"city": ["Bern"], "zip": [99]})
    assert np.isfinite(model.predict(new)).all()


def test_given_values_leave_the_others_at_zero(store):
    url = store(FRAME[["city", "age", "paid"]], "a.parquet", row_group_size=100)
    model = sd.Ridge(tol=1e-10).fit(ParquetTable(url, categories={"city": ["Oslo", "Rome"]}), y="paid")
    X = np.column_stack([FRAME.city == "Oslo", FRAME.city == "Rome", FRAME.age]).astype(float)
    np.testing.assert_allclose(model.coef_, sd.Ridge(tol=1e-10).fit(X, FRAME.paid).coef_, atol=1e-10)


def test_given_values_that_no_row_has_are_said(store):
    url = store(FRAME[["city", "age", "paid"]], "a.parquet", row_group_size=100)
    table = ParquetTable(url, categories={"city": ["Oslo", "Roma", "Köln"]})
    n_rome = np.count_nonzero(FRAME.city == "Rome")
    with pytest.warns(UserWarning, match=f"'city': no row has 'Roma'; {n_rome} rows have .* 'Rome'") as said:
        sd.Ridge().fit(table, y="paid")
    assert said[0].filename == __file__


def test_names_of_folders_are_columns(store, address):
    for year in (2025, 2026):
        for city in ("Oslo", "Köln"):
            own = FRAME[(FRAME.rooms > 3) == (year == 2026)][lambda frame, city=city: frame.city == city]
            store(own[["age", "paid"]].reset_index(drop=True), f"year={year}/city={city}/a.parquet")
    frame = pd.concat(
        [
            own
            for _, own in FRAME[FRAME.city != "Rome"]
            .assign(year=2025 + (FRAME.rooms > 3))
            .sort_values(["year", "city"], kind="stable")
            .groupby(["year", "city"])
        ]
    )
    X = np.column_stack([frame.age, frame.year, frame.city == "Köln", frame.city == "Oslo"]).astype(float)
    here = sd.Ridge(tol=1e-10).fit(X, frame.paid)
    with distributed.Client(address):
        model = sd.Ridge(tol=1e-10).fit("memory://bucket", y="paid")
        assert model.vocabulary_.tolist() == ["age", "year", "city=Köln", "city=Oslo"]
        np.testing.assert_allclose(model.coef_, here.coef_, atol=1e-9)
        found = model.predict("memory://bucket/*/*/a.parquet").compute()
    np.testing.assert_allclose(np.sort(found), np.sort(here.predict(X)), atol=1e-8)
    np.testing.assert_allclose(model.predict(frame), here.predict(X), atol=1e-8)
    coded = sd.Ridge().fit(ParquetTable("memory://bucket", categories=["year"]), y="paid")
    assert coded.vocabulary_.tolist()[1:3] == ["year=2025", "year=2026"]


def test_a_folder_alone_has_the_classes_of_all(store):
    """month=10 without month=09 looks like numbers."""
    for month in ("09", "10"):
        url = store(pd.DataFrame({"x": np.arange(20.0) + 100 * (month == "10")}), f"month={month}/a.parquet")
    model = sd.LogisticRegression().fit("memory://bucket", y="month")
    assert model.classes_.tolist() == ["09", "10"]
    assert model.score(url, y="month") == 1.0


def test_many_categories_stay_sparse(store, address):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"word": rng.integers(0, 400, 2000).astype(str), "y": rng.normal(size=2000)})
    url = store(frame, "a.parquet", row_group_size=300)
    X = OneHotEncoder().fit_transform(frame[["word"]])
    with distributed.Client(address):
        for model in (sd.Ridge(tol=1e-13), sd.Lasso(1e-4, tol=1e-9)):
            there = model.fit(url, y="y").coef_
            here = type(model)(model.alpha, tol=model.tol).fit(X, frame.y).coef_
            np.testing.assert_allclose(there, here, atol=1e-6)


def test_dictionaries_float32_and_decimals(store):
    table = pyarrow.table(
        {
            "city": pyarrow.array(FRAME.city).dictionary_encode(),
            "age": pyarrow.array(FRAME.age.to_numpy(np.float32)),
            "paid": pyarrow.array(FRAME.paid.to_numpy(np.float32)),
        }
    )
    model = sd.Ridge().fit(store(table, "a.parquet", row_group_size=100), y="paid")
    assert model.coef_.dtype == np.float32
    table = table.append_column("price", pyarrow.array(FRAME.rooms).cast(pyarrow.decimal128(25, 2)))
    wide = sd.Ridge().fit(store(table, "b.parquet"), y="paid")
    assert (wide.coef_.dtype, wide.n_features_in_) == (np.float64, 5)


def test_files_need_not_have_columns_in_one_order(store):
    store(FRAME[["age", "city", "paid"]][:300], "part-0.parquet")
    store(FRAME[["paid", "city", "age"]][300:], "part-1.parquet")
    model = sd.Ridge(tol=1e-10).fit("memory://bucket/part-*.parquet", y="paid")
    X = np.hstack([FRAME[["age"]], pd.get_dummies(FRAME.city).to_numpy(float)])
    np.testing.assert_allclose(model.coef_, sd.Ridge(tol=1e-10).fit(X, FRAME.paid).coef_, atol=1e-10)


# Using the model ------------------------------------------------------------------------------------------


def test_frames_and_files_are_encoded_for_predictions(files, tmp_path):
    table = ParquetTable(files, columns=FEATURES, categories=["zip"])
    fitted = sd.LogisticRegression().fit(table, y="left")
    fitted.save(tmp_path / "m.npz")
    X = by_hand(FRAME)
    plain = sd.LogisticRegression().fit(X, FRAME.left)
    for model in (fitted, sd.load(tmp_path / "m.npz")):
        shuffled = FRAME[["rooms", "left", "vip", "zip", "age", "city"]]
        np.testing.assert_allclose(model.predict_proba(shuffled), plain.predict_proba(X), atol=1e-6)
        np.testing.assert_array_equal(model.predict(pyarrow.Table.from_pandas(FRAME)), plain.predict(X))
        there = model.decision_function(files)
        np.testing.assert_allclose(there.compute(), plain.decision_function(X), atol=1e-5)
        np.testing.assert_array_equal(model.predict(X), plain.predict(X))  # encoded already


@pytest.mark.parametrize("name", ["ridge", "logistic", "sparse", "lasso", "poisson", "glm"])
def test_scores_take_files(files, name):
    models = {"ridge": (sd.Ridge(), "paid"), "logistic": (sd.LogisticRegression(), "left")}
    models |= {"sparse": (sd.SparseLogisticRegression(), "left"), "lasso": (sd.Lasso(0.01), "paid")}
    models |= {"poisson": (sd.PoissonRegressor(), "visits"), "glm": (sd.GLM(alpha=1.0), "paid")}
    model, y = models[name]
    model.fit(ParquetTable(files, columns=FEATURES, categories=["zip"]), y=y)
    expected = model.score(FRAME, FRAME[y], FRAME.weight)
    assert model.score(files, y, "weight") == pytest.approx(expected, rel=1e-9)
    assert expected > 0
    for wrong in (None, "nothing", "age"):
        with pytest.raises(DataError, match=r"y must be the name|no column 'nothing'|'age' is y"):
            model.score(files, wrong)


def test_dask_frames_are_encoded_for_predictions(files):
    dd = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    model = sd.Ridge().fit(ParquetTable(files, columns=FEATURES, categories=["zip"]), y="paid")
    lazy = model.predict(dd.from_pandas(FRAME[FEATURES], npartitions=3))
    np.testing.assert_allclose(lazy.compute(), model.predict(FRAME))


def test_values_that_the_model_has_not_seen_are_said(files):
    model = sd.Ridge().fit(ParquetTable(files, columns=FEATURES, categories=["zip"]), y="paid")
    new = FRAME[:4].assign(city=["Bern", "Rome", "Bern", "Oslo"])
    with pytest.warns(UserWarning, match="2 of 4 rows have a value of 'city' that the Ridge has not seen"):
        predicted = model.predict(new)
    np.testing.assert_allclose(predicted, model.predict(by_hand(new)))
    with pytest.raises(DataError, match="X has several columns"):
        model.predict(pd.concat([new, new[["city"]]], axis=1))


def test_a_fit_to_a_matrix_forgets_the_encoding(files):
    model = sd.Ridge().fit(ParquetTable(files, columns=FEATURES, categories=["zip"]), y="paid")
    assert hasattr(model, "vocabulary_")
    model.fit(by_hand(FRAME)[:, :2], FRAME.paid)
    assert not hasattr(model, "vocabulary_")
    with pytest.raises(DataError, match="was not fitted to files of named columns"):
        model.predict(files)


def test_a_failed_fit_leaves_the_old_model(files):
    model = sd.Ridge().fit(ParquetTable(files, columns=FEATURES, categories=["zip"]), y="paid")
    before = model.predict(FRAME)
    with pytest.raises(DataError):
        model.fit(ParquetTable(files, columns=FEATURES), y="left")
    np.testing.assert_array_equal(model.predict(FRAME), before)


def test_altered_encodings_of_model_files_are_refused(files, tmp_path):
    model = sd.Ridge().fit(ParquetTable(files, columns=FEATURES, hashed={"zip": 4}), y="paid")
    for change in ({"buckets": -1}, {"buckets": 1.5}, {"name": 3}):
        columns = [dict(column) for column in model.table_encoding_["columns"]]
        columns[2] |= change
        model.table_encoding_ = {"columns": columns, "impute": False}
        model.save(tmp_path / "m.npz")
        with pytest.raises(ModelFileError, match="how its table was read"):
            sd.load(tmp_path / "m.npz").predict(FRAME)


def test_the_models_of_callbacks_predict(files):
    seen = []
    sd.Ridge(solver="lbfgs").fit(
        ParquetTable(files, columns=FEATURES, categories=["zip"]),
        y="paid",
        callback=lambda info: seen.append(info.snapshot().predict(FRAME)),
    )
    assert seen[-1].shape == (N,)


@pytest.mark.parametrize("first", ["int64", "bool", "float32"])
def test_numbers_of_several_types_keep_their_values(store, first):
    small, large = FRAME[["age", "paid"]][:400] > 0, FRAME[["age", "paid"]][400:] * 1e100
    store(small.astype(first), "part-0.parquet")
    store(large, "part-1.parquet")
    both = pd.concat([small.astype(float), large])
    expected = sd.Ridge().fit(both[["age"]], both.paid).coef_
    np.testing.assert_allclose(sd.Ridge().fit("memory://bucket/*.parquet", y="paid").coef_, expected)


# Where the rows are ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.cluster
def test_rows_do_not_pass_through_this_process(tmp_path):
    """Bytes that this process, the scheduler's too, reads and writes do not grow with the rows."""
    from tornado.iostream import IOStream

    passed, read, write = [0], IOStream.read_from_fd, IOStream.write_to_fd

    def counted(method):
        def call(stream, data):
            n = method(stream, data)
            passed[0] += n or 0
            return n

        return call

    counts = {}
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        for n in (20_000, 20_000, 400_000):  # the first compiles
            for k in range(8):
                make_frame(n // 8, seed=k).to_parquet(tmp_path / f"{k}.parquet", row_group_size=n // 16)
            table = ParquetTable(tmp_path, columns=FEATURES)
            with (
                mock.patch.object(IOStream, "read_from_fd", counted(read)),
                mock.patch.object(IOStream, "write_to_fd", counted(write)),
                mock.patch("stradask.algorithms.inputs.tables.read_part", side_effect=AssertionError),
            ):
                for model, y in ((sd.Ridge(), "paid"), (sd.LogisticRegression(solver="newton"), "left")):
                    before = passed[0]
                    model.fit(table, y=y)
                    counts[n, y] = passed[0] - before
    for y in ("paid", "left"):
        assert counts[400_000, y] < counts[20_000, y] + 400_000, counts  # 1 byte a row; X has 56
