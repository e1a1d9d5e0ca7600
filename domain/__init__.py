"""The rules: pure functions over frozen models. No clock, no I/O, no randomness."""
