"""Impulses of all rows: the joint graph, its direct solver and what bounds them."""
