"""A model server of the laboratory: both dialects over real HTTP, with slow loads and a memory that ends."""
