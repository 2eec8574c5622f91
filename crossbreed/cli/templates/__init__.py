"""What ``crossbreed new`` writes: real plugins with their tests, under names that are replaced.

They are linted and type-checked with the package. ``my_KIND`` is the plugin, its module and its test; ``MyKind`` its class.
"""
