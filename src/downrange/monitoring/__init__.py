"""What an operator's tools ask a server: is it alive, is it ready, what does it count."""
