"""The first-party environments of rlplug: Gymnasium behind one vector interface, with state that resumes exactly."""
