"""``python -m crossbreed``."""

from crossbreed.cli import main

main()
