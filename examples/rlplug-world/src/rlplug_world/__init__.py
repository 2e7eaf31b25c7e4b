"""TD-MPC2 as a plugin of rlplug: a world model of latent states, a policy and planning."""
