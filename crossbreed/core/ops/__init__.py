"""Pure functions on tensors, one file a noun. They import torch and nothing else of crossbreed but its errors.

Legend of the shape suffixes: B batch, T tokens, S key slots, H heads, G groups of key/value heads, Q groups of
query heads, K key size, V value size, C channels, W convolution width, E experts, F expert width, J expert slots
of a token, D model width, N rows (tokens of all sequences, flattened), O output width. In `linear_cross_entropy`
and `normalised_entropy` V is the vocabulary.

Recurrences share three conventions. `valid_BT` is False where a token neither writes nor decays; its output is
zero. `reset_BT` is True where a document starts; whatever the state held before that token is forgotten. The
returned state is fp32 (float64 for float64 inputs), and any split of T gives the outputs and the state of the whole.
"""
