"""The rules of serving pools: which pool may run a model, where its endpoint may be, what is kept warm."""
