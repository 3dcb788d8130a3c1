"""Charts of plans and runs, and their display in a notebook."""
