"""ontempo beside what users would pick instead: one stream, one path, real programs."""
