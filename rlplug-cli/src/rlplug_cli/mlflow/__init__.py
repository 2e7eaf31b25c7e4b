"""The mirror of a run in MLflow: the hook that starts the sender, the sender process, what it copies, and the store."""
