"""Charts of plans and runs, and how a notebook shows them."""
