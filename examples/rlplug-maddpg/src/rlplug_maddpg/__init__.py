"""MADDPG: an actor and a centralized critic for each agent of a world."""
