"""Fits from, and checkpoints and models in, a store that speaks S3: moto's server, on this machine."""

import os
import socket
import subprocess
import sys
import time

import fsspec
import numpy as np
import pytest

import stradask as sd
from stradask.datasets import make_lda_corpus, read_uci_bow, save_uci_bow
from stradask.errors import DataError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bucket():
    """The URL of a bucket, which this process and the workers that it starts reach."""
    pytest.importorskip("moto", reason="the server of moto[server] is not installed")
    s3fs = pytest.importorskip("s3fs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    names = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "FSSPEC_S3_ENDPOINT_URL": address,
    }
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setitem(os.environ, name, value)
        patch.setitem(fsspec.config.conf, "s3", {"endpoint_url": address})  # it has read the environment
        try:
            _wait_for(port)
            s3fs.S3FileSystem(endpoint_url=address).mkdir("corpus")
            yield "s3://corpus"
        finally:
            server.kill()
            server.wait()


def _wait_for(port):
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("moto's server did not start")


def test_models_are_fitted_to_parquet_files_of_a_bucket(bucket):
    distributed = pytest.importorskip("distributed")
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"city": rng.choice(["Rome", "Oslo"], 900), "age": rng.normal(size=900)})
    frame["left"] = frame.age + (frame.city == "Oslo") + rng.normal(size=900) > 0
    for part in range(3):
        written = frame[300 * part : 300 * (part + 1)].to_parquet(None, row_group_size=100)
        with fsspec.open(f"{bucket}/people.{part}.parquet", "wb") as file:
            file.write(written)
    here = sd.LogisticRegression(tol=1e-10).fit(f"{bucket}/people.*.parquet", y="left")
    X = np.column_stack([frame.city == "Oslo", frame.city == "Rome", frame.age]).astype(float)
    np.testing.assert_allclose(
        here.coef_, sd.LogisticRegression(tol=1e-10).fit(X, frame.left).coef_, atol=1e-6
    )
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        there = sd.LogisticRegression(tol=1e-10).fit(f"{bucket}/people.*.parquet", y="left")
        found = there.predict(f"{bucket}/people.*.parquet").compute()
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-8)
    np.testing.assert_array_equal(found, here.predict(frame))


def test_topics_from_a_bucket_have_the_same_bits_on_threads_and_workers(bucket):
    distributed = pytest.importorskip("distributed")
    X, *_ = make_lda_corpus(900, 200, 5, random_state=0)
    for part, ending in enumerate(["txt", "txt", "txt.gz"]):
        save_uci_bow(X[300 * part : 300 * (part + 1)], f"{bucket}/docword.{part}.{ending}")
    assert (read_uci_bow(f"{bucket}/docword.2.txt.gz") != X[600:]).nnz == 0
    options = {"max_iter": 6, "random_state": 0, "n_groups": 5}
    here = sd.LatentDirichletAllocation(5, **options).fit(f"{bucket}/docword.*")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        there = sd.LatentDirichletAllocation(5, engine="dask", **options).fit(f"{bucket}/docword.*")
        kept = sd.LatentDirichletAllocation(5, engine="dask", checkpoint=f"{bucket}/state", **options)
        kept.fit(f"{bucket}/docword.*")
    np.testing.assert_array_equal(there.components_, here.components_)
    np.testing.assert_array_equal(kept.components_, here.components_)


def test_models_in_a_bucket(bucket):
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = sd.Lasso(alpha=0.1).fit(X, X[:, 0])
    model.save(f"{bucket}/lasso.npz")
    np.testing.assert_array_equal(sd.load(f"{bucket}/lasso.npz").coef_, model.coef_)


def test_what_is_not_there(bucket):
    with pytest.raises(DataError, match=r"s3://nobucket/x.txt: cannot be opened"):
        sd.LatentDirichletAllocation(2).fit("s3://nobucket/x.txt")
    with pytest.raises(DataError, match=r"no file fits this pattern"):
        sd.LatentDirichletAllocation(2).fit(f"{bucket}/none*")
    with pytest.raises(FileNotFoundError, match=r"s3://nobucket/m.npz"):
        sd.load("s3://nobucket/m.npz")
    with pytest.raises(FileNotFoundError, match=r"s3://nobucket/m.npz"):
        sd.Lasso().fit([[0.0], [1.0]], [0, 1]).save("s3://nobucket/m.npz")
