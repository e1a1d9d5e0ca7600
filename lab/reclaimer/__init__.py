"""The provider that takes capacity back: whom, when, with or without a warning, and by a recorded trace."""
