"""Benchmarks against other libraries: objectives, data, solvers, runner and report."""
