"""The `sco` command line, a thin client of the REST API."""
