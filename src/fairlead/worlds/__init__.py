"""What an algorithm faces: simulated clients, or real ones."""
