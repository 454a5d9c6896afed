"""A cluster inside a program: name server and brokers on one event loop, on real ports.

with DevCluster() as cluster:
    mq = downrange.sync.connect(cluster.name_servers)
"""

from downrange.embedded.cluster import EmbeddedCluster
from downrange.embedded.dev_cluster import DevCluster
from downrange.embedded.plan import ClusterPlan, Parts

__all__ = ["ClusterPlan", "DevCluster", "EmbeddedCluster", "Parts"]
