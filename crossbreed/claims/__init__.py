"""What the papers claim, as data, and the miniatures that support it, contradict it or leave it open.

``claim`` declares, ``papers`` holds the declarations, ``plan`` and ``runner`` make the runs, ``record`` keeps them, ``measures``
and ``judge`` turn them into verdicts.
"""
