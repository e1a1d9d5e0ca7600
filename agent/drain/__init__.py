"""Taking work off this node: the executor, the systems it asks, and the path that needs none of them."""
