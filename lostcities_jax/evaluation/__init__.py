"""Measuring agents: matches on shared deals, with intervals."""
