"""The serving port: what is asked of a pool's endpoint, and the adapter that asks it over HTTP."""
