"""The first-party wrappers: each is a `Transform`, named by an entry point in the group `rlplug.wrappers`."""
