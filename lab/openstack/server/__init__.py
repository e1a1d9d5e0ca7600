"""What runs inside the virtual environment of OpenStack. Nothing else may import it."""
