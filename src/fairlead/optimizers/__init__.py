"""How parameters move along a gradient, on clients and on the server."""
