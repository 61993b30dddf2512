"""Lockstep traversal: lanes that walk many games at once, their tape, and its sweep."""
