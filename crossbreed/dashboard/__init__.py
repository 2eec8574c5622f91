"""The dashboard: studies, fronts and candidates in a browser, read-only, on loopback. ``python -m crossbreed.dashboard``."""
