"""One module a figure: what was published, which cells can tell, and how they are judged."""
