"""Texts of plans and runs for the terminal."""
