"""The letters: what is said between processes, and nothing about what to do with it."""
