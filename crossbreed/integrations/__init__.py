"""Our models in other people's tools. Each module imports its tool when it is itself imported, and says what to install."""
