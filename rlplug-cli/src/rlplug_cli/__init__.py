"""rlplug-cli: the command line of rlplug and its mirror in MLflow."""

__version__ = "0.1.0"
