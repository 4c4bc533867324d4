"""Studies of memory: data beyond it, and memory freed after a fit."""
