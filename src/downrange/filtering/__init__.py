"""Does a message match a subscription: by tags, or by an SQL92 expression over its properties."""
