"""Claims from what schedulers print."""
