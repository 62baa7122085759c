"""The arena: the same films over the same paths, carried by each transport in turn.

The commands ``ontempo-lab arena`` and ``ontempo-lab demo``; how it is judged: docs/comparison.md.
"""
