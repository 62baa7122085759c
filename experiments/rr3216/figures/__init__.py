"""One module a figure, or a claim of the text."""
