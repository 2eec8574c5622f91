"""Whether plugins keep their contracts: rules by kind, run by ``crossbreed check`` and by the pytest classes in ``testing``.

A rule knows contracts, never names; what it does not apply to follows from what a descriptor states. Importing this package
imports no torch; rules do.
"""
