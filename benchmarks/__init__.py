"""Benchmarks beside the peers: objectives, data, solvers, runner and report."""
