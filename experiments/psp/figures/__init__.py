"""One module a group of figures: what is plotted, and what is asked of it."""
