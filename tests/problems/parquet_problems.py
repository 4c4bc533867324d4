"""A table of people, for Parquet files; the fixtures `store` and `files` write it."""

import numpy as np
import pytest

pd = pytest.importorskip("pandas")

N, CUTS = 900, (0, 250, 251, 900)  # rows, and where files begin


def make_frame(n=N, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "city": rng.choice(["Rome", "Oslo", "Köln"], n),
            "age": rng.normal(size=n),
            "zip": rng.integers(10, 14, n),
            "vip": rng.random(n) < 0.3,
            "rooms": rng.integers(1, 6, n),
        }
    )
    mean = 0.4 * frame.age + 0.5 * (frame.city == "Oslo") + 0.3 * (frame.zip == 12)
    frame["paid"] = mean + 0.3 * rng.normal(size=n)
    frame["visits"] = rng.poisson(np.exp(mean))
    frame["left"] = np.where(mean + rng.normal(size=n) > 0.3, "yes", "no")
    frame["weight"] = rng.random(n)
    return frame


FRAME = make_frame()
FEATURES = ["city", "age", "zip", "vip", "rooms"]
