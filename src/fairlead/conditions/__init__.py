"""What the algorithm faces: unequal work, unequal links and unequal devices."""
