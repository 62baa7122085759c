"""Programs that show what ontempo is for."""
