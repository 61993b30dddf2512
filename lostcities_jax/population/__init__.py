"""Populations: many policies trained as lanes of one program, kept as revisions, and compared.

`training.train_population` trains variants, `revisions.Registry` keeps what they come to and says
which is in use, `tournament.play_tournament` compares, `evolution.evolve` searches by rounds.
"""
