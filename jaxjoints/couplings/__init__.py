"""Couplings: the protocol, what derives them, and the library."""
