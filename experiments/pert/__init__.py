"""The reproduction of the thesis on video streaming over PERT."""
