"""The cellar: what is remembered, and the invariants that no caller can break."""
