"""The mirror of a run in MLflow: the hook that starts the sender, the sender process, the mirror and the store."""
