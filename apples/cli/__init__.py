"""The console commands, one module a command group, imported when they are called."""
