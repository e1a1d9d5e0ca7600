"""Who asks: tokens and sessions become principals, and every route says whom it needs."""
