"""Solvers whose rows lie on worker processes of a Dask cluster, one thread each: ``--solvers`` this folder.

They are apart from the others because starting worker processes takes seconds in every run.
"""
