"""What a run tells about its clients: differential privacy and secure aggregation."""
