"""Which of 20,000 columns make the target? A cross-validated path of Lasso models, and its picture."""

import numpy as np

import stradask as sd

X, y, truth = sd.datasets.make_sparse_regression(
    1000, 20_000, n_informative=12, density=0.02, popularity_exponent=0.3, snr=2.0, random_state=0
)
model = sd.LassoCV(eps=0.03, n_jobs=-1, verbose=1).fit(X, y)

informative = np.flatnonzero(truth)
for rule, alpha in (("best mean", model.alpha_min_), ("one standard error", model.alpha_1se_)):
    at = int(np.flatnonzero(model.alphas_ == alpha)[0])
    columns = model.coef_path_[:, [at]].indices
    print(
        f"{rule:<20} alpha {alpha:.4f}: {len(columns)} columns, "
        f"{len(np.intersect1d(columns, informative))} of the {len(informative)} true ones, "
        f"mean squared error {model.mse_path_[at].mean():.3f}"
    )

model.plot()[0].figure.savefig("sparse-path.png", dpi=120)
print("picture in sparse-path.png")
