"""It states feedback at a site where it may not stand."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "sites"


@hookimpl
def register_routers():
    feedback = ("mode",)  # right: feedback = ()
    return offered(Threshold, feedback_sites=feedback)
