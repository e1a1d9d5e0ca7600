"""The node agent: it drains alone, whatever else is down."""
