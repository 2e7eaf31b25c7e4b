"""PPO-Lagrangian, and a world with a forbidden shortcut."""
