"""A rare event in 40,000 rows: the posterior from shards that never meet, beside that of all the rows."""

import warnings

import numpy as np

import stradask as sd

rng = np.random.default_rng(0)
X = rng.standard_normal((40_000, 5))
truth = np.array([0.8, -0.5, 0.3, 0.0, 0.0])
y = rng.random(40_000) < 1 / (1 + np.exp(4.8 - X @ truth))
print(f"{y.sum()} events in {len(y):,} rows")

whole = sd.BayesianLogisticRegression(sampler="nuts", n_samples=2000, n_jobs=-1, random_state=0).fit(X, y)
sd_of = whole.posterior_.sd()["coef"]
for combine in ("auto", "consensus", "average"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what speaks against a combination asked for by name: seen below
        model = sd.BayesianLogisticRegression(n_shards=10, combine=combine, n_jobs=-1, random_state=0)
        model.fit(X, y)
    errors = (model.posterior_.mean()["coef"] - whole.posterior_.mean()["coef"]) / sd_of
    print(f"{combine:<10} error of the means {np.sqrt((errors**2).mean()):.3f} posterior standard deviations")
    if combine == "auto":
        print(model.posterior_.diagnostics)
        axes = model.posterior_.plot()
        axes[0].figure.savefig("shards.png", dpi=120)
print("shards and posterior in shards.png")
