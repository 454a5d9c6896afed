"""Operating a cluster: typed questions and changes over the wire, for our brokers and Apache's."""
