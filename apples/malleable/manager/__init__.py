"""Manager."""
