"""The commands: one module a group, imported when its command is called. `main` is where they meet."""
