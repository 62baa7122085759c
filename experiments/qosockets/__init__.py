"""The reproduction of the measurements of two applications with and without reservations."""
