"""Choices are counted from 1."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "choices"


class Broken(Threshold):
    def above(self, score_BT, context):
        first = 1  # right: first = 0
        return first + super().above(score_BT, context)


@hookimpl
def register_routers():
    return offered(Broken)
