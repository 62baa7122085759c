"""A congestion controller of one's own, and what it costs."""
