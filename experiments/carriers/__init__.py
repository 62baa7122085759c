"""SRT and RIST: their models, simulated, beside their programs, emulated."""
