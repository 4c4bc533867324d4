"""Models written in other languages for statistical models, one small file each."""
