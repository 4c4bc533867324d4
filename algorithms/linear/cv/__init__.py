"""Cross-validation of a whole path of penalties."""
