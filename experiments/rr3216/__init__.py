"""The reproduction of the report on out-of-sequence processing."""
