"""The `Posterior` and what it says: convergence, diagnostics, tables, pictures."""
