"""Built-in tasks. Importing this imports no torch; the classes load when a task is built."""

from __future__ import annotations

from pathlib import Path

from crossbreed.core.contracts.hookspecs import hookimpl
from crossbreed.core.contracts.task import TaskDescriptor
from crossbreed.plugins.tasks.configs import BytesConfig, RecallConfig


@hookimpl
def register_tasks() -> list[TaskDescriptor]:
    return [
        TaskDescriptor(
            name="recall",
            factory="crossbreed.plugins.tasks.recall:Recall",
            config=RecallConfig,
            summary="multi-query associative recall: look up the value that followed a key",
        ),
        TaskDescriptor(
            name="bytes",
            factory="crossbreed.plugins.tasks.text_bytes:TextBytes",
            config=BytesConfig,
            summary="next-byte prediction on a text file or folder",
            # Any text does: this package's longest module.
            example={"path": str(Path(__file__).with_name("text_bytes.py"))},
        ),
    ]
