"""One module for each figure: what was published, which cells test it, and how they are judged."""
