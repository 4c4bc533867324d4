"""The `Posterior`, its convergence, diagnostics, tables and pictures."""
