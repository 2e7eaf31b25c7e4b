"""The first-party wrappers: each a `rlplug_core.transform.Transform`, named by an entry point in `rlplug.wrappers`."""
