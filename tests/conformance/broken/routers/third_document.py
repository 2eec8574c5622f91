"""A third document in a row does not start afresh."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Smooth, offered

BREAKS = "documents"


class Broken(Smooth):
    def kept(self, context):
        if context.document_BT is None:
            return super().kept(context)
        goes_on_BT = context.document_BT > 1  # right: goes_on_BT = context.document_BT < 0
        return super().kept(context) | goes_on_BT


@hookimpl
def register_routers():
    return offered(Broken)
