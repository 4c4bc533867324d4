"""Log densities: regressions, mixtures, and functions of the user."""
