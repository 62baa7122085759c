"""A picture that is drawn while it arrives, piece by piece and in any order.

Out-of-sequence processing of application data units is what rr3216 is about; see README.md.
"""
