"""Comparisons of whole families with their peers: one command and one page each."""
