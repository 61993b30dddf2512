"""Solvers: an iteration made of traversal, memories and learners."""
