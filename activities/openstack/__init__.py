"""OpenStack seen through the ports: the only place outside the laboratory that knows it."""
