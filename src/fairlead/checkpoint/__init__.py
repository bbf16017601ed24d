"""Checkpoints: server states as safetensors beside small manifests, the last few of them, each whole or refused."""
