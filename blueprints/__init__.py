"""blueprints."""
