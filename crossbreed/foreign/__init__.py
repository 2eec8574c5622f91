"""Checkpoints of other projects, mapped by key to models of this one.

A format is data: how its keys tell it apart, the genome that its sizes and its config make, and a table that says for
every tensor here which rows of which tensors there it consists of. Nothing is skipped and nothing is left as it was drawn:
what does not fit is a sentence.
"""
