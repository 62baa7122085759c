"""ontempo compared with other transports: one stream, one path, real programs."""
