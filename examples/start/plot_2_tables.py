"""
From scikit-learn to stradask
=============================

The estimators are scikit-learn estimators: pipelines, grid searches and `clone` work as you know them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import stradask as sd

# %%
# A sparse regression
# -------------------
X, y = load_diabetes(return_X_y=True, as_frame=True)
model = sd.LassoCV().fit(X, y)
print(f"alpha {model.alpha_:.4f}, within one standard error {model.alpha_1se_:.3f}")
print({name: round(float(c), 1) for name, c in zip(X.columns, model.coef_, strict=True) if c})
model.plot()
plt.show()

# %%
# In a pipeline, in a grid search
# -------------------------------
cancer = load_breast_cancer(as_frame=True)
pipeline = make_pipeline(StandardScaler(), sd.LogisticRegression())
print("accuracy", cross_val_score(pipeline, cancer.data, cancer.target).round(3))
search = GridSearchCV(pipeline, {"logisticregression__C": [0.01, 0.1, 1.0, 10.0]}).fit(
    cancer.data, cancer.target
)
print(search.best_params_)

# %%
# The duality gap
# ---------------
# Convex fits say how far they are from the minimum at most, relative to the objective of the zero model.
wide, target, _ = sd.datasets.make_sparse_regression(500, 5000, n_informative=10, random_state=0)
for tol in (1e-2, 1e-4, 1e-8):
    lasso = sd.Lasso(alpha=0.005, tol=tol).fit(wide, target)
    print(f"tol {tol:.0e}: {np.count_nonzero(lasso.coef_)} of 5,000 columns, gap {lasso.dual_gap_:.1e}")

# %%
# Uncertainty
# -----------
# The maximum of the likelihood with standard errors, and a posterior with a verdict in words.
train, test = train_test_split(np.arange(len(cancer.target)), random_state=0)
Z = StandardScaler().fit_transform(cancer.data.iloc[:, :4])
print(sd.GLM("binomial").fit(Z[train], cancer.target.iloc[train]).summary())
bayes = sd.BayesianLogisticRegression(random_state=0).fit(Z[train], cancer.target.iloc[train])
print(bayes.posterior_.diagnostics)
print(f"accuracy on new rows {bayes.score(Z[test], cancer.target.iloc[test]):.3f}")
