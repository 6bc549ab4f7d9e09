"""Impulses of all rows: the joint graph, its direct solver, bounded laws."""
