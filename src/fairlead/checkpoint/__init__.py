"""Checkpoints: the newest few server states, as safetensors with checksummed manifests."""
