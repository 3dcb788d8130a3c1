"""The program of `scan.toml`; no session runs it."""
