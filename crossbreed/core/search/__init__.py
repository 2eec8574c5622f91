"""Many trials: what is proposed, run, stored, and how the front is read from what was stored."""
