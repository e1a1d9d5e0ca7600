"""The hands: what is touched (store, provider, Temporal), seen through small ports."""
