"""
A network that reads digits
===========================

A multilayer perceptron with scikit-learn's parameters. It stops when the loss no longer falls.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import stradask as sd

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
model = sd.MLPClassifier((64,), max_iter=300, tol=1e-3, random_state=0).fit(X_train, y_train)
print(f"accuracy on new digits: {model.score(X_test, y_test):.3f}")
print(f"{model.n_iter_} passes over the data")

# %%
plt.plot(model.loss_curve_)
plt.xlabel("pass over the data")
plt.ylabel("loss")
plt.show()
