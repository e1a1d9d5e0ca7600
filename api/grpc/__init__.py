"""The front door of model routers and pool agents: gRPC."""
