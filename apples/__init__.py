"""apples."""
