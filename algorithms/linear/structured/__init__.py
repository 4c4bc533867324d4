"""Generalised linear models with any loss and any sparse penalty: `SparseGLM` and the estimators over it."""
