"""The front door: REST and screens."""
