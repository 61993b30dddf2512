"""Exact values, best responses and tabular CFR on games small enough to list."""
