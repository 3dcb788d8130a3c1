"""The program of `units.toml`; no session runs it."""
