"""Which of 20,000 columns make the target? A cross-validated path of Lasso models, and its picture.

The truth is known here: twelve columns. The rule of the best mean finds them among others that chance has
brought in; that of one standard error takes fewer.
"""

import argparse
from pathlib import Path

import numpy as np

import stradask as sd


def main(n_features=20_000, out=Path()):
    """Run the story.

    Parameters
    ----------
    n_features : int
    out : Path
        Folder of the picture.
    """
    X, y, truth = sd.datasets.make_sparse_regression(
        1000, n_features, n_informative=12, density=0.02, popularity_exponent=0.3, snr=2.0, random_state=0
    )
    test = np.arange(len(y)) % 5 == 0
    train = ~test
    print(f"{train.sum()} rows, {n_features:,} columns of which 12 matter, {X.nnz:,} entries")

    # A hundred penalties, five folds: some 500 fits, each of which starts at the last one.
    model = sd.LassoCV(eps=0.03, n_jobs=-1, verbose=1).fit(X[train], y[train])
    informative = np.flatnonzero(truth)
    for rule, alpha in (("best mean", model.alpha_min_), ("one standard error", model.alpha_1se_)):
        at = int(np.flatnonzero(model.alphas_ == alpha)[0])
        columns = model.coef_path_[:, [at]].indices
        print(
            f"{rule:<20} alpha {alpha:.4f}: {len(columns)} columns, "
            f"{len(np.intersect1d(columns, informative))} of the {len(informative)} true ones, "
            f"mean squared error of the folds {model.mse_path_[at].mean():.3f}"
        )

    # A Lasso shrinks what it keeps: columns chosen by it, fitted again without a penalty, predict better.
    chosen = sd.LassoCV(eps=0.03, rule="1se", n_jobs=-1).fit(X[train], y[train])
    columns = np.flatnonzero(chosen.coef_)
    again = sd.Ridge(alpha=1e-6).fit(X[train][:, columns].toarray(), y[train])
    print(f"R^2 on {test.sum()} new rows: {model.score(X[test], y[test]):.3f} by the best mean, ", end="")
    print(f"{again.score(X[test][:, columns].toarray(), y[test]):.3f} by {len(columns)} columns fitted again")
    print(f"the fit is within {chosen.dual_gap_:.1e} of the least objective")

    model.plot()[0].figure.savefig(out / "sparse-path.png", dpi=100)
    print(f"picture in {out / 'sparse-path.png'}")
    return model, chosen, truth


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder of the picture")
    main(out=parser.parse_args().out)
