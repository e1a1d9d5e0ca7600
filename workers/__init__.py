"""The engine room: the processes that run, their settings and their wiring."""
