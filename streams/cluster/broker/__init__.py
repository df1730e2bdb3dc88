"""A real Kafka and a real schema registry on this machine, without Docker.

    endpoint = start(state_dir, cache_dir)      # resolves the jars the first time, then takes seconds
    ...                                         # any Kafka client on endpoint.bootstrap
    stop(state_dir)                             # data stays; stop(state_dir, wipe=True) removes it

What is started outlives the process that started it. Several brokers can run at once, each from its own state
directory. Linux and macOS; elsewhere, and without Java, docker-compose.yml does the same.
"""

from streams.cluster.broker.errors import BrokerError
from streams.cluster.broker.lifecycle import Endpoint, ServiceStatus, kafka_tool, kill_kafka, start, status, stop

__all__ = ["BrokerError", "Endpoint", "ServiceStatus", "kafka_tool", "kill_kafka", "start", "status", "stop"]
