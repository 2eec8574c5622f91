"""From a genome to a module: stages of blocks of mixers, with routers at their sites and state carried apart.

Legend: B batch, T tokens of this piece, D model width, V vocabulary, N choices.
"""
