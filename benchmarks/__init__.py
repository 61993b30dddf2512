"""Benchmarks: each command measures one part and relates it to a limit of this machine."""
