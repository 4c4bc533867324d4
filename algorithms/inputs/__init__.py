"""Input of all families: checks that compiled code relies on."""
