"""What the outside reaches: the one public port, and the HTTP server behind it."""
