"""The reproduction of the paper on inter-packet spacing."""
