"""Pages that open offline: one file each, own SVG, a canvas where there are too many marks."""
