"""What the broker does for each request code, one module a subject."""
