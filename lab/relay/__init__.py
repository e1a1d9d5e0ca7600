"""The node bus and the provider's notice relay, as the provider runs them beside its cloud.

`relay.py` is what a provider runs for real: it signs reclaim decisions and says them to each instance.
The rest is its HTTP door, its journal, and the NATS server that the nodes listen to.
"""
