"""Readers, generators, fetchers and real data at hand."""
