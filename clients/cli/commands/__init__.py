"""The commands of `sco`, one module for each group."""
