"""The first-party environments of rlplug: Gymnasium with one vector interface, and with state that resumes exactly."""
