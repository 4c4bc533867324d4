"""Compiled inner loops: arrays and scalars in, arrays out. They trust their indices."""
