"""Does a message match a subscription? Tags and SQL92."""
