"""What a plugin sees and provides: hooks, descriptors, base classes. Nothing here imports torch at run time.

Legend for tensor names: B batch, T tokens, S key slots, D model width, H heads, G key/value head groups, K key size,
V value size, E experts, F expert width, N choices.
"""
