"""From updates to one direction."""
